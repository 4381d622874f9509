"""Sixteen jobs in the fixed mix, unlike those of the eleven sets before; each without its fault is its truth.

Drawn 30 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and attention,
two between ranks, and five jobs without a fault. All are as many run them: the default of four workers, targets that
are not pinned, a loop over boolean masks that many copy, `wandb.watch` of each step, a deep stack of narrow layers,
automata in a loop, Lightning's `precision` as it is by default, a threshold of the allocator from a forum,
`attn_impl: torch` from an example, a barrier that was left, FSDP as `accelerate config` proposes it. What must be said
first, and what not, stands with each; which rules may say it, another person fills in.

What they cost, ms of a step: centernet 55.1 of 151, basenji 38.8 of 141, reid 38.1 of 105, curves 54.2 of 138, nbeats
13.6 of 31.5, growing 16.4 of 35.6, geneformer 71.2 of 141, colbert 23.1 of 251, mpt 154 of 335, instep 7.6 of 47.7,
regathered 67.1 of 571. Those without a fault take: qwen3 616, nvjpegs 101, demucs 113, twotower 19.9, bridge 248.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import colbert, geneformer, mpt
from .healthy import bridge, demucs, nvjpegs, qwen3, twotower
from .inputs import basenji, centernet
from .ranks import instep, regathered
from .rows import (
    A10_DEVICE,
    A40_DEVICE,
    A100_40_DEVICE,
    RTX2080TI_DEVICE,
    RTX3080_DEVICE,
    RTX4080_DEVICE,
    RTX6000_DEVICE,
    Plain,
    Worked,
)
from .small import growing, nbeats
from .waits import Watching, curves, reid

JOBS = (
    Watched(
        "centernet",
        RTX4080_DEVICE,
        centernet,
        "four workers draw heat maps too slowly and the GPU waits for each batch",
        rules=("input-bound",),
        steps=10,
        marked=False,
        runtime=Worked,
    ),
    Watched(
        "basenji",
        kineto.A100,
        basenji,
        "254 MB a step are copied from memory that is not pinned, while no kernel runs",
        rules=("pageable-copies",),
        steps=7,
        runtime=Plain,
    ),
    Watched(
        "reid",
        RTX2080TI_DEVICE,
        reid,
        "the triplet loss takes pictures one by one by boolean masks, 192 waits a step while the GPU idles",
        rules=("sync-in-loop",),
        steps=6,
        runtime=Plain,
    ),
    Watched(
        "curves",
        RTX6000_DEVICE,
        curves,
        "a hook reads a histogram and four values of each gradient, 750 waits in each backward pass",
        rules=("sync-in-loop",),
        steps=6,
        runtime=Watching,
    ),
    Watched(
        "nbeats",
        A10_DEVICE,
        nbeats,
        "a deep stack of narrow layers is some 1,300 small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=8,
        runtime=Plain,
    ),
    Watched(
        "growing",
        RTX3080_DEVICE,
        growing,
        "a loop over 64 times launches small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=7,
        marked=False,
        runtime=Plain,
    ),
    Watched(
        "geneformer",
        A100_40_DEVICE,
        geneformer,
        "products are TF32, tensors and attention fp32, without autocast in bf16",
        rules=("fp32-matmul",),
        steps=7,
        runtime=Plain,
    ),
    Watched(
        "colbert",
        A40_DEVICE,
        colbert,
        "a threshold lets the allocator give blocks back and ask anew nine times a step, each a wait",
        rules=("allocator-churn",),
        steps=8,
        runtime=Plain,
    ),
    Watched(
        "mpt",
        kineto.H100,
        mpt,
        "attention is written op by op, with its scores in memory, instead of by a fused kernel",
        rules=("unfused-attention",),
        steps=5,
        runtime=Plain,
    ),
    Watched(
        "instep",
        kineto.A100,
        instep,
        "a barrier at the begin of each step makes all ranks wait until the GPU is done and the last has come",
        rules=("sync-in-loop",),
        steps=9,
        runtime=Plain,
    ),
    Watched(
        "regathered",
        A40_DEVICE,
        regathered,
        "weights that have room are given back and gathered again in the backward pass, the work does not hide it",
        rules=("exposed-communication",),
        steps=5,
        shapes=False,
        runtime=Plain,
    ),
    Watched("qwen3", kineto.MI300X, qwen3, "nothing: the device is busy with products and attention", rules=(),
            steps=5, rocm=True, runtime=Plain),
    Watched("nvjpegs", kineto.A100, nvjpegs, "nothing: the device is busy, it decodes the next batch beside its work",
            rules=(), steps=8, runtime=Plain),
    Watched("demucs", kineto.V100, demucs, "nothing: the device is busy, one wait at the end of a step", rules=(),
            steps=6, marked=False, runtime=Plain),
    Watched("twotower", kineto.L4, twotower, "nothing: graphs follow one another, the host is far ahead", rules=(),
            steps=12, runtime=Plain),
    Watched("bridge", kineto.RTX3090, bridge, "nothing: gradients travel beside the backward pass", rules=(), steps=6,
            runtime=Plain),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
