"""Sixteen jobs as people run and report them; each without its fault is its truth.

Drawn 28 November 2026 without having read any rule, and before anything was analysed, after what is reported of such
jobs: pytorch/pytorch#74588 (FSDP's optimizer on the host), pytorch/pytorch#77139 (the thread that pins batches keeps
the interpreter), Lightning-AI/torchmetrics#2943 and #1413 (metrics that check their inputs),
nerfstudio-project/nerfstudio#3609 and #1712 (rays taken on the host), coqui-ai/TTS#3710 (a vocoder beside an idle
GPU), alxndrTL/mamba.py#57 (a scan in a loop), pytorch/pytorch#5421 and dbolya/yolact#438 (`nn.DataParallel`),
meta-pytorch/torchtune#522 (the loss in each step), pytorch/FBGEMM#2163 (the first launch takes long),
NVIDIA/Megatron-LM#7488 (uneven experts).

What they cost, ms of a step (`drawn_traces.py` computes it): chatty 1.5 of 3.7 (launches; its read alone nothing),
metered 2.1 of 30.6, scanned 401 of 404, rays 2.8 of 8.1, vocoded 13.2 of 46.7, doubled 21.6 of 98.2, late 19.6 of 68.6,
offloaded_shards 339 of 1,159, uneven 39.9 of 249, replicated 57 of 109, printed 1.1 of 8.8. The first step of printed
takes 3.1 s and the first of script 2.7 s; they count for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import kineto
from ..eighth_set import Recording
from ..kineto import device
from ..twelfth_set.rows import Framed
from .healthy import eightbit, overlapped, printed, script, splatted, tuned
from .ranks import offloaded, replicated, uneven
from .rows import Fresh, Pair
from .small import chatty, doubled, late, metered, rays, scanned, vocoded

MI210 = device("AMD Instinct MI210", (9, 0), 104, 64)


@dataclass(frozen=True)
class Watched(Recording):
    """runtime: whose rows are written."""

    runtime: type[Framed] = Framed


JOBS = (
    Watched("chatty", kineto.L4, chatty, "small launches; the loss that is read costs nothing beside them",
            ("launch-bound",), 8, silent=("input-bound", "small-batch", "TF32")),
    Watched("metered", kineto.T4, metered, "metrics check their inputs, value by value", ("sync-in-loop",), 5,
            silent=("input-bound", "TF32", "bfloat16")),
    Watched("scanned", kineto.RTX4090, scanned, "a scan in a loop, whose gradients fill whole tensors for each token",
            ("slow-kernels", "tensor-loop", "launch-bound"), 3, silent=("input-bound", "small-batch")),
    Watched("rays", kineto.RTX3090, rays, "rays are taken on the host", ("host-work", "input-bound", "idle-gpu"), 8,
            marked=False, silent=("small-batch", "launch-bound")),
    Watched("vocoded", kineto.A100, vocoded, "thousands of small launches", ("launch-bound",), 3, False,
            silent=("input-bound", "sync-in-loop")),
    Watched("doubled", MI210, doubled, "batches are float64 and not pinned",
            ("pageable-copies", "blocking-copies", "repeated-casts"), 5, rocm=True,
            silent=("input-bound", "launch-bound", "TF32")),
    Watched("late", kineto.A100, late, "another thread keeps the interpreter", ("idle-gpu", "input-bound"), 5, False,
            silent=("launch-bound", "sync-in-loop", "small-batch")),
    Watched("offloaded_shards", kineto.H100, offloaded, "the optimizer goes op by op on the host",
            ("idle-gpu", "host-work", "unfused-optimizer"), 3,
            silent=("no_sync", "small-batch", "pin_memory", "launch-bound")),
    Watched("uneven", kineto.MI300X, uneven, "experts of another rank get more tokens", ("exposed-communication",), 4,
            rocm=True, silent=("no_sync", "gradient", "bucket", "launch-bound")),
    Watched("replicated", kineto.RTX4090, replicated, "`nn.DataParallel` copies the model in each step",
            ("data-parallel", "exposed-communication", "launch-bound", "idle-gpu"), 4, runtime=Pair,
            silent=("no_sync", "input-bound")),
    Watched("printed", kineto.RTX4090, printed, "loss and accuracy are read in each step; the first is cold",
            ("sync-in-loop", "launch-bound"), 4, runtime=Fresh, silent=("input-bound", "cudaMalloc", "empty_cache")),
    Watched("script", kineto.RTX3090, script, "nothing: the first iteration is cold", (), 7, False, marked=False,
            runtime=Fresh, silent=("launch-bound", "sync-in-loop", "pin_memory", "empty_cache")),
    Watched("eightbit", kineto.A100, eightbit, "nothing: the host runs ahead, the device is busy", (), 4,
            silent=("launch-bound", "unfused-optimizer", "idle-gpu")),
    Watched("overlapped", kineto.H100, overlapped, "nothing: graphs follow one another", (), 8, marked=False,
            silent=("sync-in-loop", "launch-bound", "idle-gpu", "small-batch")),
    Watched("tuned", kineto.H100, tuned, "nothing: all that helps is done", (), 4,
            silent=("launch-bound", "bfloat16", "small-batch")),
    Watched("splatted", kineto.RTX3090, splatted, "nothing worth a change: one read beside all the work", (), 6,
            marked=False, silent=("input-bound", "small-batch", "TF32")),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
