"""A GPT sharded by fully_shard over two ranks: bf16 parameters, gradients reduced in fp32, fused AdamW.

    torchrun --nproc-per-node 2 gpt_fsdp2.py [late-gathers]

With the word a loss of each block is read on the host, so that the next block's gather begins only when it is needed.
"""

from __future__ import annotations

import sys

import torch
from _model import DEVICE, GPT, STEPS, Text, loss_of, started
from torch import distributed, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""


def main() -> None:
    rank, count = started()
    text, model = Text(rank), GPT().to(DEVICE)
    mesh = distributed.init_device_mesh(DEVICE.type, (count,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    sizes: list[float] = []
    if FAULT == "late-gathers":
        for block in model.blocks:
            block.register_forward_hook(lambda _m, _i, out: sizes.append(out.detach().norm().item()))
    for step in range(STEPS):
        tokens, wanted = text.batch(step)
        loss = loss_of(model(tokens).float(), wanted)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
