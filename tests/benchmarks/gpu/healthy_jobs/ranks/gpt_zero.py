"""A GPT whose optimizer's state is sharded over two ranks; a block's gradients are reduced in the backward pass.

torchrun --nproc-per-node 2 gpt_zero.py
"""

from __future__ import annotations

import torch
from _model import DEVICE, GPT, STEPS, Text, loss_of, started
from torch import distributed, nn


class Shards:
    """A module's parameters as one flat bf16 tensor, with this rank's part in fp32."""

    def __init__(self, module: nn.Module, rank: int, count: int) -> None:
        self.parameters = list(module.parameters())
        total = sum(one.numel() for one in self.parameters)
        self.flat = torch.empty(-(-total // count) * count, dtype=torch.bfloat16, device=DEVICE)
        self.gradient, self.left, self.work = torch.zeros_like(self.flat), len(self.parameters), None
        size, at = len(self.flat) // count, 0
        self.part = torch.zeros(size, dtype=torch.bfloat16, device=DEVICE)
        for one in self.parameters:
            piece = slice(at, at + one.numel())
            self.flat[piece] = one.data.flatten()
            one.data = self.flat[piece].view_as(one)
            one.grad = self.gradient[piece].view_as(one)
            one.register_post_accumulate_grad_hook(self.arrived)
            at += one.numel()
        self.mine = self.flat[rank * size : (rank + 1) * size]
        self.master = nn.Parameter(self.mine.float())

    def arrived(self, _: torch.Tensor) -> None:
        """The last gradient starts the reduction."""
        self.left -= 1
        if not self.left:
            self.work = distributed.reduce_scatter_tensor(
                self.part, self.gradient, op=distributed.ReduceOp.SUM, async_op=True
            )
            self.left = len(self.parameters)

    def reduced(self) -> None:
        """The part's gradient is there."""
        self.work.wait()
        self.master.grad = self.part.float()
        self.gradient.zero_()

    def gather(self) -> None:
        """All ranks get the new parameters."""
        self.mine.copy_(self.master.detach())
        self.work = distributed.all_gather_into_tensor(self.flat, self.mine.clone(), async_op=True)


def main() -> None:
    rank, count = started()
    text, model = Text(rank), GPT().to(DEVICE)
    ends = nn.ModuleList([model.tokens, model.places, model.norm, model.head])
    shards = [Shards(one, rank, count) for one in (*model.blocks, ends)]
    optimizer = torch.optim.AdamW([one.master for one in shards], lr=3e-4, fused=True)
    for step in range(STEPS):
        tokens, wanted = text.batch(step)
        loss = loss_of(model(tokens).float(), wanted)
        loss.backward()
        for one in shards:
            one.reduced()
        optimizer.step()
        for one in shards:
            one.gather()
        for one in shards:
            one.work.wait()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
