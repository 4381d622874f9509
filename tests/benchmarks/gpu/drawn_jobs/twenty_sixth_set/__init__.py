"""Sixteen jobs in the fixed mix, unlike those of the five sets before; each without its fault is its truth.

Drawn 29 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and attention,
two between ranks, and five jobs without a fault. All are as many run them: windows of large rasters, a loader that
Lightning was given without `pin_memory`, flags of codebooks that lie on the GPU, CleanRL's `clipfracs`, a decoder that
draws town by town, timm's first moving average, a head that was taken out of autocast, a setting of the allocator from
a forum, kernels of attention that were switched off, `--sync-bn` where nobody needs it, `FULL_SHARD` across nodes. What
must be said first, and what not, stands with each; which rules may say it, another person fills in.

What they cost, ms of a step: landcover 43.4 of 213, slowfast 35.5 of 164, soundstream 4.4 of 44.0, cleanppo 1.3 of
8.9, routes 10.5 of 49.0, shadowed 31.5 of 95.6, headed 199 of 406, kohya 39.1 of 121, esm 75.6 of 300, syncbn 31.6 of
113, hybrid 323 of 847. Those without a fault take: resnet152 167, pythia 435, xlmr 207, hifigan 239, gemma 515.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import esm, headed, kohya
from .healthy import gemma, hifigan, pythia, resnet152, xlmr
from .inputs import landcover, slowfast
from .ranks import hybrid, syncbn
from .small import routes, shadowed
from .waits import cleanppo, soundstream

JOBS = (
    Watched(
        "landcover",
        kineto.L4,
        landcover,
        "three workers read windows of compressed rasters too slowly, the GPU waits for batches",
        rules=("input-bound",),
        steps=9,
    ),
    Watched(
        "slowfast",
        kineto.RTX3090,
        slowfast,
        "252 MB of clips a step are copied from memory that is not pinned, while no kernel runs",
        rules=("pageable-copies",),
        steps=6,
        marked=False,
    ),
    Watched(
        "soundstream",
        kineto.A100,
        soundstream,
        "each of twelve codebooks asks twice for a flag that lies on the GPU, 24 waits in the forward pass",
        rules=("sync-in-loop",),
        steps=7,
    ),
    Watched(
        "cleanppo",
        kineto.V100,
        cleanppo,
        "indices come from numpy and a value is read in each minibatch, launches are never ahead",
        rules=("sync-in-loop",),
        steps=12,
        runtime=Third,
    ),
    Watched(
        "routes",
        kineto.A10G,
        routes,
        "a loop that draws town by town launches small kernels, which takes longer than they run",
        rules=("launch-bound",),
        steps=6,
        marked=False,
    ),
    Watched(
        "shadowed",
        kineto.RTX4090,
        shadowed,
        "the moving average goes through all tensors of the state one by one, launches take longer than kernels",
        rules=("tensor-loop",),
        steps=5,
        shapes=False,
    ),
    Watched(
        "headed",
        kineto.A100,
        headed,
        "the head stands outside of autocast, its products are fp32 without TF32",
        rules=("fp32-matmul",),
        steps=5,
    ),
    Watched(
        "kohya",
        kineto.RTX4090,
        kohya,
        "a threshold lets the allocator give segments back and ask for them anew, four times a step",
        rules=("allocator-churn",),
        steps=7,
        shapes=False,
    ),
    Watched(
        "esm",
        L40S_DEVICE,
        esm,
        "fused kernels of attention are switched off, the math path writes its scores",
        rules=("attention-fallback",),
        steps=5,
    ),
    Watched(
        "syncbn",
        kineto.A10G,
        syncbn,
        "each norm exchanges its moments with all ranks, forward and behind, and nothing hides it",
        rules=("exposed-communication",),
        steps=6,
    ),
    Watched(
        "hybrid",
        kineto.A100,
        hybrid,
        "weights are gathered from all ranks of two nodes, the network takes longer than a layer's work",
        rules=("exposed-communication",),
        steps=5,
        shapes=False,
    ),
    Watched("resnet152", kineto.A100, resnet152, "nothing: the device is busy", steps=5),
    Watched(
        "pythia",
        kineto.MI300X,
        pythia,
        "nothing: gradients travel beside the backward pass",
        steps=5,
        shapes=False,
        rocm=True,
    ),
    Watched("xlmr", kineto.T4, xlmr, "nothing: launches are far ahead of a slow card", steps=6, marked=False),
    Watched("hifigan", kineto.RTX3090, hifigan, "nothing: many kernels, all launched ahead", steps=5, shapes=False),
    Watched("gemma", L40S_DEVICE, gemma, "nothing: adapters, the device is busy", steps=5),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
