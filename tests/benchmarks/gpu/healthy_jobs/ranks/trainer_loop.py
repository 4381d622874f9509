"""A GPT in a loop such as the Trainer of transformers has: DDP, two micro-batches a step, clipping, a schedule, bf16.

    torchrun --nproc-per-node 2 trainer_loop.py

The loss is summed on the device and read every tenth step; gradients are reduced in the second backward pass alone.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from _model import CUDA, DEVICE, GPT, STEPS, Text, loss_of, started
from torch import distributed, nn

ACCUMULATED = 2


def main() -> None:
    rank, _ = started()
    text, model = Text(rank), GPT().to(DEVICE)
    model = nn.parallel.DistributedDataParallel(model, [DEVICE.index] if CUDA else None, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    total, logged = torch.zeros((), device=DEVICE), []
    for step in range(STEPS):
        for part in range(ACCUMULATED):
            tokens, wanted = text.batch(ACCUMULATED * step + part)
            with model.no_sync() if part < ACCUMULATED - 1 else nullcontext():
                with torch.autocast(DEVICE.type, torch.bfloat16):
                    loss = loss_of(model(tokens), wanted) / ACCUMULATED
                loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            logged.append(total.item())
            total.zero_()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
