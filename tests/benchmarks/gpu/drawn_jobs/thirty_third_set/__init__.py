"""Sixteen jobs in the fixed mix, unlike those of the twelve sets before; each without its fault is its truth.

Drawn 30 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and attention,
two between ranks, and five jobs without a fault. All are as many run them: a stream of two files for eight workers, an
accuracy that its authors count in numpy, a mask of padding that each layer counts anew, a score picture by picture, a
robot's policy that is not compiled, spectral norms in each pass, fairseq without `--fp16`, transformers' cache as it is
by default, kernels of triangles that are switched off, buffers that DDP sends in each step, a plan of tables by hand.
What must be said first, and what not, stands with each; which rules may say it, another person fills in.

What they cost, ms of a step: trocr 102 of 252, hrpose 40.2 of 262, stablelm 8.4 of 71.0, fundus 11.7 of 107, pizero 117
of 203, sngan 9.8 of 25.3, wmt 272 of 400, kvcat 12.5 of 36.1, boltz 125 of 251, tril 31.8 of 363, hotshard 32.5 of
75.5. Those without a fault take: musicgen 375, quarry 75.6, megatron 422, distil 282, stormer 183.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..thirty_second_set.rows import A100_40_DEVICE
from ..twelfth_set.rows import Framed
from .device import boltz, kvcat, wmt
from .healthy import distil, megatron, musicgen, quarry, stormer
from .inputs import hrpose, trocr
from .ranks import hotshard, tril
from .rows import (
    A4000_DEVICE,
    A6000_DEVICE,
    B200_DEVICE,
    H100_PCIE_DEVICE,
    H200_DEVICE,
    L40S_DEVICE,
    Ended,
    Kept,
    Marked,
    Working,
)
from .small import pizero, sngan
from .waits import fundus, stablelm

_STACKS = {
    "hrpose": ("tools/train.py(193): <module>", "tools/train.py(61): main"),
    "fundus": ("train_lesions.py(171): <module>", "train_lesions.py(124): main"),
}

JOBS = (
    Watched(
        "trocr",
        A100_40_DEVICE,
        trocr,
        "two files are streamed, two of eight workers have work, and the GPU waits for each batch",
        rules=("input-bound",),
        steps=8,
        runtime=Working,
    ),
    Watched(
        "hrpose",
        A6000_DEVICE,
        hrpose,
        "53 MB of maps go back to the host after each step, where numpy counts while the GPU idles",
        rules=("idle-gpu", "blocking-copies"),
        steps=5,
        runtime=Ended,
    ),
    Watched(
        "stablelm",
        kineto.H100,
        stablelm,
        "each layer counts words of a mask of padding anew, two waits in each in the forward pass",
        rules=("launch-bound", "sync-in-loop"),
        steps=6,
        runtime=Ended,
    ),
    Watched(
        "fundus",
        A4000_DEVICE,
        fundus,
        "a score is read from the GPU picture by picture and class by class, 90 waits after each step",
        rules=("sync-in-loop",),
        steps=6,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "pizero",
        kineto.RTX4090,
        pizero,
        "ten steps of a flow are some 11,000 small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=3,
        runtime=Ended,
    ),
    Watched(
        "sngan",
        H100_PCIE_DEVICE,
        sngan,
        "spectral norms of each pass are a thousand of small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=6,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "wmt",
        kineto.V100,
        wmt,
        "all products are fp32 without tensor cores, where fp16 would do",
        rules=("fp32-matmul",),
        steps=6,
        runtime=Ended,
    ),
    Watched(
        "kvcat",
        H200_DEVICE,
        kvcat,
        "keys and values of all that was said are copied for each word, the cache grows by concatenation",
        rules=("slowing-steps",),
        steps=14,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "boltz",
        kineto.A100,
        boltz,
        "attention around triangles is written op by op, with its scores in memory, instead of by a fused kernel",
        rules=("unfused-attention",),
        steps=5,
        runtime=Kept,
    ),
    Watched(
        "tril",
        L40S_DEVICE,
        tril,
        "DDP sends 403 MB of buffers that nobody uses before each forward pass, and nothing hides it",
        rules=("buffer-broadcasts",),
        steps=6,
        runtime=Ended,
    ),
    Watched(
        "hotshard",
        kineto.H100,
        hotshard,
        "one rank has the largest table alone, all others wait for its rows in the exchange",
        rules=("exposed-communication",),
        steps=8,
        shapes=False,
        runtime=Marked,
    ),
    Watched("musicgen", kineto.MI300X, musicgen, "nothing: the device is busy with products and attention", rules=(),
            steps=5, rocm=True, runtime=Ended),
    Watched("quarry", kineto.RTX3090, quarry, "nothing: the device is busy with splats, two short waits", rules=(),
            steps=8, marked=False, runtime=Ended),
    Watched("megatron", kineto.H100, megatron, "nothing: weights and gradients travel beside the work", rules=(),
            steps=5, shapes=False, runtime=Marked),
    Watched("distil", kineto.T4, distil, "nothing: the device is busy, three short waits at the end of a step",
            rules=(), steps=7, marked=False, runtime=Ended),
    Watched("stormer", B200_DEVICE, stormer, "nothing: a compiled model, the device is busy", rules=(), steps=7,
            runtime=Ended),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _STACKS.get(job.name, ())
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
