"""Sixteen jobs of the most ordinary kind; each without its fault is its truth.

Drawn 29 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and the form
of attention, two between ranks. Most are also reported: mlfoundations/open_clip#13 and #899 (workers, a slow disk),
chakki-works/seqeval#62 (metrics that take longer than training), speechbrain/speechbrain#2010 and HyperGAN/HyperGAN#355
(`isfinite` of each gradient), rtqichen/torchdiffeq#15 (solvers of many small ops), sail-sg/Adan#1 and
facebookresearch/schedule_free#10 (optimizers without `foreach`), huggingface/peft#2894 (`gc.collect()` and
`empty_cache()` after each step), pytorch/pytorch#100347 and lyuwenyu/RT-DETR#678 (`need_weights=True`), NVIDIA/nccl#893
(one GPU that lags behind), pytorch/pytorch#48880 and #118421 (buckets); states of the air that are not pinned and
autocast around the loss alone are as many run them. What must be said first, and what not, stands with each.

What they cost, ms of a step (`drawn_traces.py` computes it): webbed 214 of 447, fields 107 of 359, listed 42.4 of 195
(40 of it what the host counts), finite 30.7 of 287 (10 of it the kernels of checks), odes 27.8 of 35.7, lions 37.3 of
111, misplaced 594 of 667, swept 42.3 of 283, weighed 259 of 351, capped 49.4 of 211, slivers 24.8 of 91.4. Those
without a fault take: flexed 427, hooked 550, prefetcher 149, likelihoods 650, patches 362.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import misplaced, swept, weighed
from .healthy import flexed, hooked, likelihoods, patches, prefetcher
from .host import fields, finite, listed, webbed
from .ranks import Led, capped, slivers
from .small import lions, odes

_OUTER = ("<string>(1): <module>", "train.py(288): <module>", "train.py(251): main")
_NOTEBOOK = (
    "runpy.py(88): _run_code",
    "ipykernel_launcher.py(18): <module>",
    "ipykernel_41/1823341237.py(9): <module>",
)
_STACKS = {"fields": _OUTER, "listed": _OUTER, "swept": _NOTEBOOK, "patches": _OUTER}

JOBS = (
    Watched(
        "webbed",
        L40S_DEVICE,
        webbed,
        "four workers decode too few pictures, the GPU waits for each batch",
        ("input-bound",),
        7,
        False,
        marked=False,
        silent=("launch-bound", "pin_memory", "sync-in-loop", "small-batch"),
    ),
    Watched(
        "fields",
        kineto.A100,
        fields,
        "664 MB a step are copied from memory that is not pinned, while no kernel runs",
        ("pageable-copies", "blocking-copies"),
        4,
        silent=("launch-bound", "small-batch", "num_workers"),
    ),
    Watched(
        "listed",
        kineto.RTX4090,
        listed,
        "predictions go to lists in each step and the host counts them, while the GPU waits",
        ("sync-in-loop", "host-work", "idle-gpu"),
        5,
        silent=("input-bound", "launch-bound", "small-batch", "TF32"),
    ),
    Watched(
        "finite",
        kineto.H100,
        finite,
        "the host waits for 386 answers whether a gradient is finite",
        ("sync-in-loop",),
        4,
        silent=("input-bound", "small-batch", "TF32", "unfused-optimizer"),
    ),
    Watched(
        "odes",
        kineto.RTX3090,
        odes,
        "a small network is called 64 times in a loop over time, launches take longer than kernels",
        ("launch-bound", "tensor-loop"),
        4,
        silent=("input-bound", "TF32", "sync-in-loop", "unfused-optimizer"),
    ),
    Watched(
        "lions",
        kineto.RTX4090,
        lions,
        "the optimizer goes through 452 parameters one by one",
        ("unfused-optimizer", "launch-bound"),
        4,
        False,
        silent=("input-bound", "TF32", "sync-in-loop", "channels_last"),
    ),
    Watched(
        "misplaced",
        kineto.A100,
        misplaced,
        "autocast is around the loss, not around the model, whose products are fp32 without TF32",
        ("fp32-matmul",),
        4,
        silent=("input-bound", "launch-bound", "small-batch", "sync-in-loop"),
    ),
    Watched(
        "swept",
        kineto.T4,
        swept,
        "memory is given back after each step and asked for anew",
        ("allocator-churn", "host-work"),
        5,
        silent=("input-bound", "launch-bound", "TF32", "bfloat16", "expandable_segments"),
    ),
    Watched(
        "weighed",
        L40S_DEVICE,
        weighed,
        "attention writes its scores and their mean for a result that nobody uses",
        ("slow-kernels", "repeated-casts"),
        3,
        silent=("input-bound", "launch-bound", "small-batch", "TF32"),
    ),
    Watched(
        "capped",
        kineto.H100,
        capped,
        "the GPU of another rank is slower, all wait for it in their reductions",
        ("exposed-communication",),
        5,
        False,
        silent=("bucket", "no_sync", "input-bound", "launch-bound", "sync-in-loop"),
        runtime=Led,
    ),
    Watched(
        "slivers",
        kineto.V100,
        slivers,
        "gradients go in 42 small buckets, each of which is mostly latency",
        ("small-collectives", "exposed-communication"),
        5,
        silent=("input-bound", "no_sync", "TF32", "bfloat16"),
        runtime=Third,
    ),
    Watched("flexed", kineto.H100, flexed, "nothing: compiled, the device is busy", (), 4),
    Watched("hooked", kineto.A100, hooked, "nothing: gradients travel beside the backward pass", (), 4),
    Watched("prefetcher", L40S_DEVICE, prefetcher, "nothing: batches come beside the step before", (), 6, False),
    Watched("likelihoods", kineto.A100, likelihoods, "nothing: the device is busy", (), 4, marked=False),
    Watched("patches", kineto.RTX4090, patches, "nothing: what the host does is hidden", (), 5),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _STACKS.get(job.name, ())
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
