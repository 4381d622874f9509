"""Fourteen jobs as people train and report them; each without its fault is its truth.

Drawn 27 November 2026 without having read any rule, and before anything was analysed, after threads:
linkedin/Liger-Kernel#241 and pytorch/pytorch#124480 (logits in fp32), PKU-YuanGroup/Open-Sora-Plan#109 and
unslothai/unsloth#8021 (a mask without FlashAttention), Motphys/UniLab#662 (soft updates of a target),
facebookresearch/dlrm#15 and pytorch/pytorch#5309 (dense gradients of tables), pytorch/pytorch#2759 and
pytorch/vision#5985 (`cudnn.benchmark` with sizes that vary), pytorch/pytorch#119640 and #188913 (graphs of many sizes),
pytorch/pytorch#15245 and pyg-team/pytorch_geometric#95 (the backward pass of `x[index]`), mindee/doctr#2141 and
facebookresearch/detr#562 (matching), pytorch/pytorch#102434 and oumi-ai/oumi#213 (FSDP across nodes),
huggingface/transformers#23419 and NVIDIA-NeMo/Automodel#635 (checkpoints). Rules are named as in the sets before; some
faults may have none.

What they cost, ms of a step (`drawn_traces.py` computes it): logits 31.7 of 463.3, masked 676.6 of 1,237.9, polyak 3.9
of 11.6, table 47.3 of 63.1, searched 3,691 of 3,942, regraphed 109.7 of 143.6, indexed 36.9 of 182.1, matched 73.9 of
300.9, across 63.1 of 305.4. saved 1,158 of 1,727 with one checkpoint in six steps: it is 6.2 s once, so what it costs a
step is for the interval of checkpoints to say. The first steps of table and denoising are cold.
"""

from __future__ import annotations

from .. import kineto
from ..eighth_set import Recording
from .healthy import denoising, evaluating, prefetching, whispered
from .jobs import indexed, masked, table
from .language import across, logits, regraphed, saved
from .rows import Sized
from .small import matched, polyak, searched

JOBS = (
    Recording("logits", kineto.MI300X, logits, "logits of 128,256 are cast to fp32 and passed over op by op",
              ("repeated-casts", "slow-kernels"), 4, rocm=True, silent=("fp32-matmul", "TF32", "small-batch")),
    Recording("masked", kineto.H100, masked, "a dense mask keeps attention from FlashAttention", ("slow-kernels",), 4,
              silent=("launch-bound", "fp32-matmul")),
    Recording("polyak", kineto.L4, polyak, "a target network is updated parameter by parameter",
              ("unfused-optimizer", "tensor-loop", "launch-bound"), 12, marked=False, silent=("input-bound",)),
    Recording("table", kineto.A100, table, "Adam updates all rows of tables for few that were read",
              ("slow-kernels", "unfused-optimizer"), 8, silent=("input-bound", "launch-bound", "small-batch")),
    Recording("searched", kineto.L4, searched, "cuDNN times its plans for each new length",
              ("slow-kernels", "sync-in-loop"), 10, silent=("input-bound", "small-batch")),
    Recording("regraphed", kineto.A100, regraphed, "a CUDA graph is recorded for each length",
              ("recompiles", "idle-gpu"), 10, silent=("input-bound", "empty_cache")),
    Recording("indexed", kineto.L4, indexed, "the backward pass of `x[index]` sorts", ("slow-kernels",), 6,
              marked=False, silent=("launch-bound", "small-batch")),
    Recording("matched", kineto.T4, matched, "predictions are matched set by set on the host",
              ("sync-in-loop", "launch-bound"), 4, silent=("bfloat16", "TF32", "input-bound", "pin_memory")),
    Recording("across", kineto.H100, across, "shards are gathered across nodes", ("exposed-communication",), 4,
              silent=("no_sync", "bucket_cap_mb", "small-batch")),
    Recording("saved", kineto.H100, saved, "a checkpoint is copied and written while the GPU waits",
              ("idle-gpu", "blocking-copies", "pageable-copies"), 6, silent=("exposed-communication", "sync-in-loop")),
    Recording("evaluating", kineto.A100, evaluating, "nothing: three reads after each batch of 170 ms", (), 8,
              marked=False, silent=("sync-in-loop", "no_grad")),
    Recording("prefetching", kineto.A100, prefetching, "nothing: all exchanges are hidden or cannot be", (), 8,
              silent=("sync-in-loop", "exposed-communication", "pageable-copies")),
    Recording("whispered", kineto.L4, whispered, "nothing: the GPU is busy", (), 4,
              silent=("sync-in-loop", "repeated-casts")),
    Recording("denoising", kineto.H100, denoising, "nothing: the first step compiles", (), 5,
              silent=("recompiles", "graph-breaks")),
)  # fmt: skip


def run(job: Recording, *, fixed: bool = False) -> Sized:
    """Some steps of a job."""
    rt = Sized(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
