"""Sixteen jobs in the fixed mix, unlike those of the seven sets before; each without its fault is its truth.

Drawn 30 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and
convolutions, two between ranks, and five jobs without a fault. All are as many run them: the Trainer's loader as it is
by default, SwinIR with another size of patches than it was made for, the Lovász loss by present classes, Kornia's
changes of pictures, a network of splines, accumulation from a script for a small card, `from_pretrained` without a
dtype, an allocator without its cache, cuDNN switched off by a forum's advice, NCCL's peer-to-peer switched off by a
script for other cards, `all_gather_object` in each step. What must be said first, and what not, stands with each; which
rules may say it, another person fills in.

What they cost, ms of a step: tagged 101 of 270, swinir 41.4 of 133, lovasz 19.2 of 86.3, kornia 2.6 of 26.9, kan 4.6 of
8.4, micro 38.8 of 86.2, undtyped 32.6 of 245, nocache 56.8 of 330, nocudnn 45.0 of 96.0, p2poff 103 of 253, objects
18.7 of 127. Those without a fault take: videomae 91.2, esrnet 101, marian 148, bert 241, products 295.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from ..twenty_seventh_set.rows import A6000_DEVICE
from .device import PCIE_DEVICE, Uncached, nocache, nocudnn, undtyped
from .healthy import bert, esrnet, marian, products, videomae
from .inputs import swinir, tagged
from .ranks import objects, p2poff
from .small import Summed, kan, micro
from .waits import kornia, lovasz

JOBS = (
    Watched(
        "tagged",
        kineto.A10G,
        tagged,
        "the loop itself decodes sounds and makes spectrograms between steps, the GPU waits for batches",
        rules=("input-bound",),
        steps=7,
    ),
    Watched(
        "swinir",
        kineto.A100,
        swinir,
        "masks that never change are made on the host in 18 blocks and moved from pageable memory, each waits",
        rules=("pageable-copies", "sync-in-loop"),
        steps=6,
    ),
    Watched(
        "lovasz",
        kineto.V100,
        lovasz,
        "the loss asks of each class of each picture whether it is there, 88 waits a step",
        rules=("sync-in-loop",),
        steps=6,
        marked=False,
        runtime=Third,
    ),
    Watched(
        "kornia",
        kineto.A100,
        kornia,
        "changes of pictures on the GPU read masks and move single values, some 60 waits before the forward pass",
        rules=("sync-in-loop",),
        steps=8,
    ),
    Watched(
        "kan",
        kineto.RTX4090,
        kan,
        "splines of many small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=10,
        marked=False,
    ),
    Watched(
        "micro",
        kineto.A100,
        micro,
        "a batch of 32 texts in eight parts of four, whose kernels take longer to launch than to run",
        rules=("launch-bound", "small-batch"),
        steps=5,
        runtime=Summed,
    ),
    Watched(
        "undtyped",
        PCIE_DEVICE,
        undtyped,
        "the frozen base lies in fp32, autocast makes a bf16 copy of each weight in each step",
        rules=("repeated-casts",),
        steps=6,
    ),
    Watched(
        "nocache",
        L40S_DEVICE,
        nocache,
        "the allocator keeps no memory, each tensor is a cudaMalloc and a cudaFree that waits for the GPU",
        rules=("allocator-churn",),
        steps=5,
        runtime=Uncached,
    ),
    Watched(
        "nocudnn",
        kineto.T4,
        nocudnn,
        "cuDNN is switched off, convolutions write columns out picture by picture and multiply",
        rules=("unused-cudnn",),
        steps=5,
    ),
    Watched(
        "p2poff",
        kineto.H100,
        p2poff,
        "peer-to-peer is switched off, gradients go through the host's memory and not by NVLink, nothing hides them",
        rules=("exposed-communication",),
        steps=6,
        shapes=False,
    ),
    Watched(
        "objects",
        A6000_DEVICE,
        objects,
        "scores of all ranks are gathered as pickled objects by way of the host in each step, all GPUs idle meanwhile",
        rules=("exposed-communication",),
        steps=6,
    ),
    Watched("videomae", kineto.A100, videomae, "nothing: the device is busy, gradients travel beside the work",
            rules=(), steps=6),
    Watched("esrnet", kineto.RTX3090, esrnet, "nothing: the device is busy with convolutions", rules=(), steps=5,
            shapes=False),
    Watched("marian", L40S_DEVICE, marian, "nothing: the device is busy, one wait at the end of a step", rules=(),
            steps=6, runtime=Summed),
    Watched("bert", kineto.MI300X, bert, "nothing: the device is busy with products", rules=(), steps=6, rocm=True),
    Watched("products", kineto.A100, products, "nothing: the device is busy, its memory is the bound", rules=(),
            steps=6, marked=False),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
