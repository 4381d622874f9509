"""Sixteen jobs in the fixed mix, unlike those of the three sets before; each without its fault is its truth.

Drawn 29 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and attention,
two between ranks, and five jobs without a fault. All are as many run them: a loader as it is by default, DLRM's lists
of indices, YOLOX' assignment of labels, a switch of DeepSpeed that was left on, sentence-transformers with its small
batch, a world model's loop, products without TF32, memory in pieces, DINOv2 without xFormers, no `no_sync()`, ZeRO 2
without `overlap_comm`. What must be said first, and what not, stands with each; which rules may say it, another person
fills in.

What they cost, ms of a step: herbarium 72.5 of 136, criteo 6.3 of 17.4, simota 28.2 of 81.9, breakdown 5.4 of 51.9,
minilm 5.9 of 15.6, dreamer 52.0 of 107, transunet 119 of 227, padded 42.5 of 601, dinov2 114 of 251, unsynced 528 of
1,300, inline 130 of 712. Those without a fault take: titan 1,131, packed 1,207, spoken 260, streets 355, crops 128.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import dinov2, padded, transunet
from .healthy import crops, packed, spoken, streets, titan
from .inputs import criteo, herbarium
from .ranks import inline, unsynced
from .small import dreamer, minilm
from .waits import breakdown, simota

A100_PCIE = kineto.device("NVIDIA A100 80GB PCIe", (8, 0), 108, 79)

JOBS = (
    Watched(
        "herbarium",
        kineto.A10G,
        herbarium,
        "the loader has no workers, the loop decodes each picture itself and the GPU waits for batches",
        ("input-bound",),
        6,
    ),
    Watched(
        "criteo",
        kineto.A100,
        criteo,
        "indices and offsets go table by table from memory that is not pinned, 54 copies that wait",
        ("pageable-copies", "sync-in-loop"),
        10,
        marked=False,
    ),
    Watched(
        "simota",
        kineto.V100,
        simota,
        "labels are assigned picture by picture with masks and values that the host reads, 180 waits a step",
        ("sync-in-loop",),
        5,
        runtime=Third,
    ),
    Watched(
        "breakdown",
        L40S_DEVICE,
        breakdown,
        "timers synchronise the device around forward, backward and step, launches are no longer ahead",
        ("sync-in-loop",),
        8,
        False,
    ),
    Watched(
        "minilm",
        kineto.T4,
        minilm,
        "kernels of few short sentences take less than their launches",
        ("launch-bound",),
        8,
    ),
    Watched(
        "dreamer",
        kineto.RTX4090,
        dreamer,
        "a loop over time launches small kernels, which takes longer than they run",
        ("launch-bound",),
        5,
        False,
        marked=False,
    ),
    Watched(
        "transunet",
        kineto.A100,
        transunet,
        "the transformer's products are fp32 without TF32",
        ("fp32-matmul",),
        5,
    ),
    Watched(
        "padded",
        kineto.L4,
        padded,
        "the allocator is refused memory, gives all segments back and asks anew, three times a step",
        ("allocator-churn",),
        6,
        False,
    ),
    Watched(
        "dinov2",
        kineto.MI300X,
        dinov2,
        "attention goes op by op and writes its scores",
        ("unfused-attention",),
        5,
        rocm=True,
    ),
    Watched(
        "unsynced",
        kineto.RTX4090,
        unsynced,
        "gradients are reduced in each of four micro-batches",
        ("accumulation-without-no-sync",),
        5,
    ),
    Watched(
        "inline",
        A100_PCIE,
        inline,
        "ZeRO 2 reduces its buckets in line with the backward pass, nothing hides them",
        ("exposed-communication",),
        5,
        False,
    ),
    Watched("titan", kineto.H100, titan, "nothing: weights and gradients travel beside the work", (), 5, False),
    Watched("packed", kineto.A100, packed, "nothing: adapters, the device is busy", (), 5),
    Watched("spoken", kineto.RTX4090, spoken, "nothing: each token reads all weights", (), 6, False, marked=False),
    Watched("streets", kineto.RTX3090, streets, "nothing: the device is busy", (), 6),
    Watched("crops", kineto.L4, crops, "nothing: many launches are hidden behind a slow card", (), 5, False),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
