"""Sixteen jobs as people run and report them; each without its fault is its truth.

Drawn 29 November 2026 without having read any rule, and before anything was analysed, after what is reported of such
jobs: huggingface/diffusers#2266 and #11872 (weights that travel for each module), deepspeedai/DeepSpeed#1635 and #6834
(an update on the host), jishengpeng/WavTokenizer#17, k2-fsa/icefall#554 and ByteDance-Seed/VeOmni#115
(`CUDA_LAUNCH_BLOCKING=1` left set), huggingface/transformers#12878 and #18947 (an evaluation that keeps its logits),
huggingface/transformers#40016 and unslothai/unsloth#2582 (experts in a loop), LibreYOLO/libreyolo#763 (waits in a loss
of boxes); a loader without workers, Adafactor, eager attention of Gemma 2, TRL's checkpointing and Megatron-LM without
its overlaps are as many run them. What must be said first, and what not, stands with each.

What they cost, ms of a step (`drawn_traces.py` computes it): sequential 688 of 812 (copies 577, their hooks the rest),
unworkered 375 of 478 (2.6 of it memory that is not pinned), cpu_adam 599 of 1,219 (update 520, norms 58, weights that
come back 33), blocking 12.2 of 61.7, hoarded 21.7 of 40.7 and more with each batch, softcapped 156 of 615, recomputing
21.6 of 101, adafactored 67.5 of 170 (46 of it idle), moe_loop 118 of 155 (waits alone 13), yolo 2.4 of 36.3 (what the
bar reads 0.1 of it), unhidden 101 of 544. Those without a fault take: titan 1,075, replayed_vit 194, rccl 390, vectors
207, lightning 89.2.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import Started, adafactored, hoarded, recomputing, softcapped
from .healthy import lightning, rccl, replayed_vit, titan, vectors
from .host import Blocking, Plain, blocking, cpu_adam, sequential, unworkered
from .ranks import unhidden
from .small import moe_loop, yolo

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
        runtime=Plain,
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
    Watched(
        "unhidden",
        kineto.A100,
        unhidden,
        "gradients are reduced after the backward pass and weights gathered after the update, nothing runs beside",
        ("exposed-communication",),
        3,
        False,
        silent=("input-bound", "launch-bound", "no_sync", "sync-in-loop"),
    ),
    Watched("titan", kineto.H100, titan, "nothing: weights come a layer ahead, the device is busy", (), 4),
    Watched("replayed_vit", kineto.A100, replayed_vit, "nothing: two graphs a step, the device is busy", (), 6, False),
    Watched(
        "rccl",
        kineto.MI300X,
        rccl,
        "nothing: gradients travel beside the backward pass",
        (),
        3,
        False,
        rocm=True,
        marked=False,
    ),
    Watched("vectors", kineto.RTX4090, vectors, "nothing: batches follow one another", (), 7, marked=False),
    Watched("lightning", kineto.A100, lightning, "nothing: workers are ahead, the device is busy", (), 6),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _OUTER if job.name in _STACKS else ()
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
