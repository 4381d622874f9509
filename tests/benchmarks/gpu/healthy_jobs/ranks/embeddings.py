"""A ranking model: each of two ranks owns half of the tables and sends pooled rows to all; dense layers in DDP.

torchrun --nproc-per-node 2 embeddings.py
"""

from __future__ import annotations

import torch
from _model import CUDA, DEVICE, STEPS, started
from torch import distributed, nn
from torch.nn import functional

BATCH, TABLES, ROWS, WIDTH, BAG, DENSE = 13 * 64, 8, 20_000, 128, 8, 64


class Exchange(torch.autograd.Function):
    """Pooled rows of this rank's tables for all samples, to all tables' rows of this rank's samples."""

    @staticmethod
    def forward(context, rows):
        out = torch.empty_like(rows)
        distributed.all_to_all_single(out, rows)
        return out

    @staticmethod
    def backward(context, gradient):
        out = torch.empty_like(gradient)
        distributed.all_to_all_single(out, gradient.contiguous())
        return out


class Dense(nn.Module):
    """Layers below and above the interaction of features."""

    def __init__(self) -> None:
        super().__init__()
        features = TABLES + 1
        pairs = features * (features - 1) // 2
        self.below = nn.Sequential(nn.Linear(DENSE, 512), nn.ReLU(), nn.Linear(512, WIDTH), nn.ReLU())
        self.above = nn.Sequential(
            nn.Linear(pairs + WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
        )
        self.pairs = torch.triu_indices(features, features, 1, device=DEVICE)  # no buffer: DDP would broadcast it

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        below = self.below(dense)
        features = torch.cat([below[:, None], pooled], 1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.above(torch.cat([below, products], 1))


def main() -> None:
    _, count = started()
    mine = TABLES // count
    table = nn.EmbeddingBag(mine * ROWS, WIDTH, mode="sum", sparse=True).to(DEVICE)
    model = nn.parallel.DistributedDataParallel(
        Dense().to(DEVICE), [DEVICE.index] if CUDA else None, gradient_as_bucket_view=True
    )
    sparse = torch.optim.SGD(table.parameters(), lr=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    everyone = count * BATCH
    shift = torch.arange(mine, device=DEVICE).repeat_interleave(everyone)[:, None] * ROWS
    lists = [torch.randint(0, ROWS, (mine * everyone, BAG), device=DEVICE) + shift for _ in range(8)]
    features, labels = torch.randn(BATCH, DENSE, device=DEVICE), torch.rand(BATCH, 1, device=DEVICE).round()
    for step in range(STEPS):
        pooled = table(lists[step % 8]).view(mine, count, BATCH, WIDTH).transpose(0, 1).contiguous()
        ours = Exchange.apply(pooled).view(TABLES, BATCH, WIDTH).transpose(0, 1)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            logits = model(features, ours)
        loss = functional.binary_cross_entropy_with_logits(logits.float(), labels)
        sparse.zero_grad(set_to_none=True)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        sparse.step()
        optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
