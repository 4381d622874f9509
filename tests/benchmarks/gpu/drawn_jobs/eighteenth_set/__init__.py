"""Sixteen jobs as people run them; each without its fault is its truth.

Drawn 28 November 2026 without having read any rule, and before anything was analysed, after set-ups that the sets
before had not: preferences with a reference model that travels, boxes that are matched on the host, volumes by windows,
an update that is compiled again, texts without their padding, features of waves on the GPU, a teacher with a graph,
SOAP, TorchRec without its pipeline, a heavy last stage, gloo; without a fault rollouts in the process that trains,
buckets of speech, inputs of layers in the host's memory, DeepEP in two halves, neighbours that another thread samples.

What they cost, ms of a step (`drawn_traces.py` computes it): referred 433 of 843, crowded 177 of 311, slid 389 of 822,
rated 378 of 861, unpadded 6.8 of 86.3, fbanks 20.6 of 69.5, distilled 178 of 371, soaped 81.8 of 254, inlined 1.7 of
10.9 (the copy 1.2), lopsided 198 of 886, glooed 59.2 of 205. Those without a fault take: colocated 635, bucketed 104 (a
validation of 64 in one of seven), spilled 1,164, deepened 88.3, hotrows 20.6.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import B200_DEVICE, L40S_DEVICE
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import distilled, soaped
from .healthy import Ahead, bucketed, colocated, deepened, hotrows, spilled
from .host import crowded, rated, referred, slid
from .ranks import Hosted, glooed, inlined, lopsided
from .rows import Remembered
from .small import fbanks, unpadded

_OUTER = ("<string>(1): <module>", "train.py(288): <module>", "train.py(131): train_one_epoch")
_STACKS = ("referred", "crowded", "spilled")

JOBS = (
    Watched(
        "referred",
        kineto.H100,
        referred,
        "the frozen reference model goes to the GPU and back in each step: copies of pageable memory",
        ("blocking-copies", "pageable-copies"),
        3,
    ),
    Watched(
        "crowded",
        kineto.RTX3090,
        crowded,
        "boxes of a crowded picture are matched with the anchors on the host, the GPU waits",
        ("idle-gpu",),
        4,
    ),
    Watched(
        "slid",
        kineto.RTX3090,
        slid,
        "each window's prediction is copied to pageable memory and added up by the host, the GPU waits",
        ("sync-in-loop", "blocking-copies"),
        3,
    ),
    Watched(
        "rated",
        kineto.H100,
        rated,
        "the compiled update is compiled anew for each learning rate, a number of Python",
        ("recompiles",),
        5,
    ),
    Watched(
        "unpadded",
        L40S_DEVICE,
        unpadded,
        "each layer looks for the padding anew and waits for it twice",
        ("sync-in-loop",),
        5,
        marked=False,
        runtime=Remembered,
    ),
    Watched(
        "fbanks",
        kineto.A100,
        fbanks,
        "features are computed wave by wave on the GPU in the loop, by small works with a wait for each wave",
        ("sync-in-loop",),
        6,
        False,
    ),
    Watched(
        "distilled",
        kineto.MI300X,
        distilled,
        "the backward pass goes through the teacher, whose gradients nobody uses",
        (),
        3,
        False,
        rocm=True,
    ),
    Watched(
        "soaped",
        kineto.A100,
        soaped,
        "the optimizer finds the bases of all matrices anew in each step",
        ("frequent-decompositions",),
        6,
    ),
    Watched(
        "inlined",
        kineto.A100,
        inlined,
        "keys are copied and exchanged in line, and the host waits for their number",
        ("blocking-copies",),
        8,
    ),
    Watched(
        "lopsided",
        kineto.H100,
        lopsided,
        "the last stage has the head besides as many layers, the others wait for it",
        (),
        3,
        marked=False,
    ),
    Watched(
        "glooed",
        kineto.RTX3090,
        glooed,
        "gradients are summed by gloo in the host's memory, not by NCCL",
        ("host-backend",),
        5,
        False,
        runtime=Hosted,
    ),
    Watched(
        "colocated",
        kineto.H100,
        colocated,
        "nothing: tokens are graphs, the device is busy",
        (),
        2,
        False,
        marked=False,
    ),
    Watched(
        "bucketed",
        kineto.A10G,
        bucketed,
        "nothing: steps differ as their lengths do, one holds a validation",
        (),
        7,
        runtime=Remembered,
    ),
    Watched("spilled", kineto.RTX4090, spilled, "nothing: activations leave and return beside the products", (), 3),
    Watched("deepened", B200_DEVICE, deepened, "nothing: tokens travel beside the other half's work", (), 4, False),
    Watched(
        "hotrows",
        kineto.A100,
        hotrows,
        "nothing: another thread samples the next batch on the device",
        (),
        9,
        marked=False,
        runtime=Ahead,
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
