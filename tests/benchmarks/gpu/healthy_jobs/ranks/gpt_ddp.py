"""A GPT on each of two ranks, DistributedDataParallel, bf16 autocast, fused AdamW; a loss is logged every tenth step.

    torchrun --nproc-per-node 2 gpt_ddp.py [small-buckets | one-bucket | item | straggler]

A word gives it a fault: buckets of 64 KiB, one bucket for all gradients, a loss that the first rank reads in each step,
a first rank that computes statistics in Python.
"""

from __future__ import annotations

import sys

import torch
from _model import CUDA, DEVICE, GPT, STEPS, Text, loss_of, started
from torch import distributed, nn

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
BUCKETS = {"small-buckets": 0.0625, "one-bucket": 4096.0}


def statistics() -> float:
    """Some milliseconds of Python."""
    total = 0.0
    for i in range(200_000):
        total += i % 7
    return total


def main() -> None:
    rank, _ = started()
    text, model = Text(rank), GPT().to(DEVICE)
    where = [DEVICE.index] if CUDA else None
    model = nn.parallel.DistributedDataParallel(
        model, where, bucket_cap_mb=BUCKETS.get(FAULT, 25.0), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    losses = []
    for step in range(STEPS):
        tokens, wanted = text.batch(step)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = loss_of(model(tokens), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9 or (FAULT == "item" and rank == 0):
            losses.append(loss.item())
        if FAULT == "straggler" and rank == 0:
            losses.append(statistics())
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
