"""Sixteen jobs as people run and report them; each without its fault is its truth.

Drawn 28 November 2026 without having read any rule, and before anything was analysed, after what is reported of such
jobs: huggingface/trl#3426 and #4489 (rewards one after another), kornia/kornia#966 and #3803 (augmentations on the
GPU), yanx27/Pointnet_Pointnet2_pytorch#50 (points chosen in a loop), pytorch/pytorch#105203 and #135409 (batches in
order), pytorch/pytorch#117081 and ultralytics/ultralytics#26181 (memory that is filled), meta-pytorch/attention-gym#149
and lightseekorg/TorchSpec#187 (block masks), Nerogar/OneTrainer#324 (T5 in the loop), NVIDIA/Megatron-LM#6676 (Muon
alike on each rank), huggingface/trl#1483 and #3858 (ZeRO-3 that generates), lightseekorg/TorchSpec#13 and
Tencent-Hunyuan/UniRL#45 (uneven lengths), EvolvingLMMs-Lab/OneVision-Encoder#68 (`find_unused_parameters`),
pytorch/pytorch#108234 (FSDP's limiter).

What they cost, ms of a step (`drawn_traces.py` computes it): rewarded 910 of 1,381 (27 of it memory), augmented 13.9 of
119.9 (waits 9, passes 5), pointed 53.9 of 66.2 (3.1 of it numpy; the first step counts for nothing), ordered 65.1 of
105.9 (all in two of the steps), deterministic 15.2 of 38.9 (sorts 12, fills 3), remasked 44.8 of 693, reencoded 118 of
204 (T5 85, VAE 32), muon 63.5 of 260, regathered 35.4 of 59.6, unbalanced 65.4 of 206, unused 3.0 of 9.2 (what
launches cost besides is not computed). limited and converged look bad and are right as they are.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..thirteenth_set.rows import Fresh
from ..twelfth_set.rows import Framed
from .device import deterministic, muon, reencoded, remasked
from .healthy import converged, grouped, lagged, limited, staged
from .host import augmented, ordered, pointed, rewarded
from .ranks import regathered, unbalanced, unused
from .rows import Filled

_OUTER = ("<string>(1): <module>", "train.py(260): <module>", "train.py(118): train_one_epoch")
_STACKS = ("rewarded", "ordered")

JOBS = (
    Watched("rewarded", kineto.H100, rewarded, "answers are judged one by one on the host; memory is emptied",
            ("host-work", "idle-gpu", "allocator-churn"), 3, silent=("input-bound", "launch-bound", "small-batch")),
    Watched("augmented", kineto.A10G, augmented, "augmentations wait for what the host drew and go op by op",
            ("sync-in-loop", "pageable-copies", "blocking-copies", "idle-gpu", "slow-kernels"), 5,
            silent=("input-bound", "pin_memory=True", "TF32", "every N steps")),
    Watched("pointed", kineto.RTX3090, pointed, "points are chosen one by one, with waits; the first step is cold",
            ("sync-in-loop", "tensor-loop", "launch-bound", "idle-gpu", "host-work"), 4, marked=False, runtime=Fresh,
            silent=("every N steps", "small-batch", "empty_cache")),
    Watched("ordered", kineto.A10G, ordered, "each eighth batch is late: workers together are too slow",
            ("input-bound",), 16, silent=("launch-bound", "recompiles", "pin_memory", "sync-in-loop")),
    Watched("deterministic", kineto.RTX4090, deterministic, "memory is filled and gradients are sorted: deterministic",
            ("slow-kernels", "deterministic"), 5, runtime=Filled, silent=("input-bound", "sync-in-loop", "TF32")),
    Watched("remasked", kineto.H100, remasked, "each layer writes the whole mask anew", ("slow-kernels",), 3,
            silent=("input-bound", "launch-bound", "sync-in-loop", "small-batch")),
    Watched("reencoded", kineto.H100, reencoded, "frozen encoders run for what never changes",
            ("slow-kernels", "precompute"), 3, silent=("input-bound", "launch-bound", "sync-in-loop", "small-batch")),
    Watched("muon", kineto.H100, muon, "each rank orthogonalizes all matrices",
            ("slow-kernels", "unfused-optimizer"), 3,
            silent=("input-bound", "no_sync", "exposed-communication", "fused=True")),
    Watched("regathered", kineto.A100, regathered, "weights are gathered for each token",
            ("exposed-communication", "late-shard-gathers", "launch-bound"), 8, marked=False,
            silent=("no_sync", "bucket", "input-bound", "every N steps")),
    Watched("unbalanced", kineto.A100, unbalanced, "other ranks hold longer texts and come late",
            ("exposed-communication",), 6, silent=("no_sync", "bucket_cap_mb", "input-bound", "launch-bound")),
    Watched("unused", kineto.V100, unused, "launches; then a search for unused parameters and a broadcast of buffers",
            ("launch-bound", "small-collectives", "exposed-communication", "host-work", "idle-gpu"), 6,
            silent=("input-bound", "no_sync", "bfloat16", "TF32")),
    Watched("limited", kineto.H100, limited, "nothing: the host waits so that memory lasts", (), 4,
            silent=("sync-in-loop", "exposed-communication", "late-shard-gathers", "launch-bound")),
    Watched("converged", kineto.A100, converged, "nothing: float64 and reads are of the method", (), 5, marked=False,
            silent=("sync-in-loop", "TF32", "bfloat16", "launch-bound", "fp32-matmul")),
    Watched("staged", kineto.H100, staged, "nothing: a checkpoint leaves beside the products", (), 6, False,
            silent=("blocking-copies", "pageable-copies", "idle-gpu", "sync-in-loop")),
    Watched("lagged", kineto.RTX3090, lagged, "nothing: what is read has long been there", (), 7, marked=False,
            silent=("sync-in-loop", "launch-bound", "idle-gpu", "input-bound")),
    Watched("grouped", kineto.MI300X, grouped, "nothing: experts are one product", (), 3, False, rocm=True,
            silent=("launch-bound", "sync-in-loop", "tensor-loop", "TF32")),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _OUTER if job.name in _STACKS else ()
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
