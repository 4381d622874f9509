"""A GPT whose wide layers are experts, one on each of two ranks; tokens go to them by all-to-all with a fixed capacity.

    torchrun --nproc-per-node 2 moe.py [uneven]

With the word the first rank's expert gets three quarters of all tokens.
"""

from __future__ import annotations

import sys

import torch
from _model import BATCH, DEVICE, GPT, LAYERS, LENGTH, STEPS, WIDTH, Text, loss_of, started
from torch import distributed, nn

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
TOKENS = BATCH * LENGTH


class Exchange(torch.autograd.Function):
    """Rows to the ranks that own their expert, and the gradients back."""

    @staticmethod
    def forward(context, rows, sends, receives):
        context.sizes = sends, receives
        out = rows.new_empty(sum(receives), rows.shape[1])
        distributed.all_to_all_single(out, rows, receives, sends)
        return out

    @staticmethod
    def backward(context, gradient):
        sends, receives = context.sizes
        out = gradient.new_empty(sum(sends), gradient.shape[1])
        distributed.all_to_all_single(out, gradient.contiguous(), sends, receives)
        return out, None, None


class Experts(nn.Module):
    """The router and this rank's expert."""

    def __init__(self, rank: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, count, bias=False)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        first = TOKENS * 3 // 4 if FAULT == "uneven" else TOKENS // count
        shares = [first] + [(TOKENS - first) // (count - 1)] * (count - 1)
        self.sends, self.receives = shares, [shares[rank]] * count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, WIDTH)
        weights = self.router(rows).softmax(-1)
        order = weights[:, 0].argsort(descending=True)
        there = Exchange.apply(rows[order], self.sends, self.receives)
        back = Exchange.apply(self.expert(there), self.receives, self.sends)
        placed = torch.zeros_like(rows).index_copy(0, order, back)
        return (placed * weights.amax(-1, keepdim=True)).view_as(x)


def main() -> None:
    rank, count = started()
    text = Text(rank)
    model = GPT(*(Experts(rank, count) for _ in range(LAYERS))).to(DEVICE)
    dense = [one for name, one in model.named_parameters() if ".expert." not in name]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for step in range(STEPS):
        tokens, wanted = text.batch(step)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = loss_of(model(tokens), wanted)
        loss.backward()
        flat = torch.cat([one.grad.flatten() for one in dense])
        distributed.all_reduce(flat)
        parts = flat.split([one.numel() for one in dense])
        torch._foreach_copy_(
            [one.grad for one in dense], [part.view_as(one) for part, one in zip(parts, dense, strict=True)]
        )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
