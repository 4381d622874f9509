"""Sixteen jobs of the most ordinary kind, unlike those of the sets before; each without its fault is its truth.

Drawn 29 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and layout,
two between ranks. Some are also reported: ultralytics/yolov5#3012 (two processors of Colab), toshikwa/
sac-discrete.pytorch#10 and #17 (frames that become float32 before they are moved), huggingface/transformers#10496 and
#22097 (`isinf` of each sublayer), torchmd/torchmd-net#195 (derivatives of small networks, graphs), chaiNNer-org/
chaiNNer#1640 (`empty_cache()` of pictures in tiles), pytorch/pytorch#48430 (`channels_last_3d`), pytorch/examples#1146
and pytorch/pytorch#4406 (`average_gradients`); losses assay by assay, heads in a list, an encoder before autocast and
a rank 0 that scores are as many run them. What must be said first, and what not, stands with each.

What they cost, ms of a step (`drawn_traces.py` computes it): colab 171 of 315, replay 37.2 of 115, assays 38.9 of 121,
flan 6.5 of 66.6, pinn 8.1 of 10.6, headwise 19.5 of 24.7, medsam 137 of 276, tiles 59.6 of 367, kinetics 27.0 of 89.4,
scribe 41.1 of 129, tutorial 24.8 of 73.9. Those without a fault take: stories 421, dictated 298, poses 167, sampler
1,339, collator 403.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import kinetics, medsam, tiles
from .healthy import collator, dictated, poses, sampler, stories
from .host import assays, colab, flan, replay
from .ranks import scribe, tutorial
from .small import headwise, pinn

_OUTER = ("<string>(1): <module>", "train.py(196): <module>", "train.py(84): main")
_NOTEBOOK = (
    "runpy.py(88): _run_code",
    "colab_kernel_launcher.py(37): <module>",
    "ipykernel_312/2894410663.py(17): <cell line: 1>",
)
_STACKS = {"colab": _NOTEBOOK, "headwise": ("<string>(1): <module>", "gpt.py(226): <module>"), "collator": _OUTER}

JOBS = (
    Watched(
        "colab",
        kineto.T4,
        colab,
        "two workers decode and augment too few pictures, the GPU waits for each second batch",
        ("input-bound",),
        9,
        False,
        silent=("launch-bound", "pin_memory", "sync-in-loop", "small-batch", "TF32", "bfloat16"),
        runtime=Third,
    ),
    Watched(
        "replay",
        kineto.RTX4090,
        replay,
        "231 MB a step are copied as float32 from memory that is not pinned, while no kernel runs",
        ("pageable-copies", "blocking-copies"),
        8,
        marked=False,
        silent=("launch-bound", "small-batch", "num_workers", "TF32"),
    ),
    Watched(
        "assays",
        kineto.RTX3090,
        assays,
        "the loss goes assay by assay and takes labels by masks, the host waits 384 times a step",
        ("sync-in-loop",),
        4,
        silent=("input-bound", "small-batch", "TF32", "unfused-optimizer", "every N steps"),
    ),
    Watched(
        "flan",
        kineto.V100,
        flan,
        "each sublayer asks whether a value is infinite, 60 waits in the forward pass",
        ("sync-in-loop",),
        5,
        False,
        silent=("input-bound", "small-batch", "TF32", "bfloat16", "unfused-optimizer", "every N steps"),
        runtime=Third,
    ),
    Watched(
        "pinn",
        kineto.A100,
        pinn,
        "derivatives of a small network are kernels of a few µs, launches take longer",
        ("launch-bound",),
        5,
        silent=("input-bound", "TF32", "sync-in-loop", "unfused-optimizer"),
    ),
    Watched(
        "headwise",
        kineto.H100,
        headwise,
        "heads of attention are called one after another, launches take longer than kernels",
        ("launch-bound", "tensor-loop"),
        4,
        False,
        silent=("input-bound", "TF32", "sync-in-loop", "unfused-optimizer"),
    ),
    Watched(
        "medsam",
        kineto.RTX4090,
        medsam,
        "the encoder stands before autocast, its products are fp32 without TF32",
        ("fp32-matmul",),
        3,
        silent=("input-bound", "launch-bound", "small-batch", "sync-in-loop"),
    ),
    Watched(
        "tiles",
        kineto.RTX3090,
        tiles,
        "memory is given back after each tile and asked for anew",
        ("allocator-churn",),
        4,
        False,
        marked=False,
        silent=("input-bound", "launch-bound", "TF32", "expandable_segments"),
    ),
    Watched(
        "kinetics",
        kineto.A100,
        kinetics,
        "cuDNN turns tensors before and after each 3D convolution: no channels_last_3d",
        ("layout-transposes",),
        4,
        silent=("input-bound", "launch-bound", "small-batch", "TF32", "bfloat16"),
    ),
    Watched(
        "scribe",
        kineto.A100,
        scribe,
        "rank 0 decodes and writes its log in each step, all wait for it in their reductions",
        ("exposed-communication",),
        5,
        silent=("bucket", "no_sync", "input-bound", "launch-bound", "sync-in-loop"),
    ),
    Watched(
        "tutorial",
        kineto.A10G,
        tutorial,
        "gradients are reduced one by one behind the backward pass, 364 small reductions",
        ("small-collectives", "exposed-communication"),
        4,
        False,
        silent=("input-bound", "no_sync", "TF32", "bfloat16"),
    ),
    Watched("stories", kineto.H100, stories, "nothing: compiled, the device is busy", (), 4, False),
    Watched("dictated", L40S_DEVICE, dictated, "nothing: gradients travel beside the backward pass", (), 4),
    Watched("poses", kineto.T4, poses, "nothing: batches come beside the step before", (), 5, marked=False),
    Watched("sampler", kineto.RTX4090, sampler, "nothing: graphs follow one another", (), 4, False, marked=False),
    Watched("collator", kineto.RTX3090, collator, "nothing: what the host does is hidden", (), 5),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _STACKS.get(job.name, ())
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
