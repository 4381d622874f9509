"""Sixteen jobs as people run and report them; each without its fault is its truth."""

from __future__ import annotations

from . import kineto
from .nineteenth_set_device import Started, adafactored, hoarded, recomputing, softcapped
from .nineteenth_set_host import Blocking, blocking, cpu_adam, sequential, unworkered
from .nineteenth_set_small import moe_loop, yolo
from .thirteenth_set import Watched
from .twelfth_set_rows import Framed

_OUTER = ("<string>(1): <module>", "run.py(212): <module>", "run.py(97): main")
_STACKS = ("sequential", "cpu_adam")

JOBS = (
    Watched(
        "sequential",
        kineto.RTX4090,
        sequential,
        "weights come to the GPU for each module of each step, tensor by tensor, from memory that is not pinned",
        ("blocking-copies", "pageable-copies"),
        3,
        marked=False,
        silent=("input-bound", "launch-bound", "small-batch"),
    ),
    Watched(
        "unworkered",
        kineto.T4,
        unworkered,
        "pictures are decoded by the loop itself, without workers, while the GPU waits",
        ("input-bound", "blocking-copies", "pageable-copies"),
        4,
        silent=("launch-bound", "small-batch", "TF32", "bfloat16"),
    ),
    Watched(
        "cpu_adam",
        kineto.A100,
        cpu_adam,
        "the optimizer is on the host, the GPU waits for it",
        ("idle-gpu", "host-work"),
        3,
        silent=("input-bound", "launch-bound", "no_sync", "bucket"),
    ),
    Watched(
        "blocking",
        kineto.RTX3090,
        blocking,
        "each launch waits for its kernel, `CUDA_LAUNCH_BLOCKING=1` was left set",
        ("sync-in-loop", "idle-gpu"),
        5,
        False,
        silent=("input-bound", "small-batch"),
        runtime=Blocking,
    ),
    Watched(
        "hoarded",
        kineto.A100,
        hoarded,
        "an evaluation keeps all logits on the GPU and copies those so far anew with each batch",
        ("slow-kernels",),
        8,
        marked=False,
        silent=("input-bound", "launch-bound", "small-batch", "allocator-churn"),
        runtime=Started,
    ),
    Watched(
        "softcapped",
        kineto.MI300X,
        softcapped,
        "attention is eager: scores are written and read op by op",
        ("slow-kernels",),
        3,
        rocm=True,
        silent=("input-bound", "launch-bound", "small-batch"),
    ),
    Watched(
        "recomputing",
        kineto.H100,
        recomputing,
        "layers run once more in the backward pass though memory is free",
        ("recomputed-activations",),
        4,
        silent=("input-bound", "launch-bound"),
        runtime=Started,
    ),
    Watched(
        "adafactored",
        kineto.A100,
        adafactored,
        "the optimizer goes parameter by parameter, op by op",
        ("unfused-optimizer",),
        4,
        False,
        silent=("input-bound", "small-batch", "TF32"),
    ),
    Watched(
        "moe_loop",
        kineto.H100,
        moe_loop,
        "experts are called one by one, and the host waits for which tokens each has",
        ("sync-in-loop", "tensor-loop", "launch-bound"),
        3,
        silent=("input-bound", "small-batch", "pin_memory"),
    ),
    Watched(
        "yolo",
        kineto.RTX4090,
        yolo,
        "the loss waits twice for each picture's boxes, the bar reads three losses a step",
        ("sync-in-loop",),
        5,
        silent=("input-bound", "pin_memory", "TF32"),
    ),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _OUTER if job.name in _STACKS else ()
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
