"""Sixteen jobs in the fixed mix, unlike those of the nine sets before; each without its fault is its truth.

Drawn 30 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and
convolutions, two between ranks, and five jobs without a fault. All are as many run them: rows that a loop picks out of
a table on the host, a tokenizer that has no fast form, priorities of a replay, a decoder that asks whether all have
ended, an embedding for each column, the authors' loop of a Fourier operator, `tf32` where `bf16` was meant, an offload
from a tutorial for small cards, `seed_everything` with a deterministic cuDNN, tensor parallelism without NVLink,
`ZeroRedundancyOptimizer` for a model that fits. What must be said first, and what not, stands with each; which rules
may say it, another person fills in.

What they cost, ms of a step: rtdl 14.0 of 74.7, mecab 48.4 of 97.8, rainbow 30.8 of 97.5, lines 19.9 of 118, columns
15.8 of 33.4, fno 24.9 of 55.5, bart 122 of 284, zerooff 589 of 1,122, seeded 42.7 of 123, colwise 843 of 1,465,
redundant 111 of 408. Those without a fault take: longtext 1,449, wav2vec 178, starcoder 823, clicks 23.6, falcon 762.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import bart, seeded, zerooff
from .healthy import H200_DEVICE, clicks, falcon, longtext, starcoder, wav2vec
from .inputs import mecab, rtdl
from .ranks import colwise, redundant
from .small import RTX5090_DEVICE, columns, fno
from .waits import lines, rainbow

JOBS = (
    Watched(
        "rtdl",
        kineto.RTX4090,
        rtdl,
        "rows are picked on the host and copied from memory that is not pinned, while no kernel runs",
        rules=("pageable-copies",),
        steps=9,
        marked=False,
    ),
    Watched(
        "mecab",
        kineto.A100,
        mecab,
        "the loader has no workers, a slow tokenizer runs in the loop and the GPU waits for batches",
        rules=("input-bound",),
        steps=8,
    ),
    Watched(
        "rainbow",
        kineto.L4,
        rainbow,
        "the host waits for priorities behind each step and draws the next batch only then, while the GPU idles",
        rules=("sync-in-loop",),
        steps=8,
    ),
    Watched(
        "lines",
        kineto.A10G,
        lines,
        "a decoder's loop asks at each of 28 signs whether all lines have ended, each a wait",
        rules=("sync-in-loop",),
        steps=7,
    ),
    Watched(
        "columns",
        kineto.V100,
        columns,
        "220 columns have a table each, whose kernels take less than their launches",
        rules=("launch-bound", "separate-tables"),
        steps=6,
        runtime=Third,
    ),
    Watched(
        "fno",
        RTX5090_DEVICE,
        fno,
        "a loop over time launches thousands of small kernels, which takes longer than they run",
        rules=("launch-bound",),
        steps=6,
        marked=False,
    ),
    Watched(
        "bart",
        kineto.RTX3090,
        bart,
        "all products are TF32 and all tensors fp32, without autocast in bf16",
        rules=("fp32-matmul",),
        steps=6,
    ),
    Watched(
        "zerooff",
        kineto.H100,
        zerooff,
        "the optimizer and its states lie in the host's memory, the GPU idles while it steps and weights come back",
        rules=("idle-gpu",),
        steps=5,
        shapes=False,
    ),
    Watched(
        "seeded",
        kineto.A100,
        seeded,
        "cuDNN must be deterministic, weight gradients of large maps run in few blocks",
        rules=("idle-multiprocessors",),
        steps=6,
    ),
    Watched(
        "colwise",
        L40S_DEVICE,
        colwise,
        "each layer is cut over four cards without NVLink, nothing hides the sums of activations",
        rules=("exposed-communication",),
        steps=5,
    ),
    Watched(
        "redundant",
        kineto.RTX4090,
        redundant,
        "an optimizer in parts sends all weights to all ranks behind each step, 296 broadcasts that nothing hides",
        rules=("exposed-communication",),
        steps=6,
    ),
    Watched("longtext", H200_DEVICE, longtext, "nothing: the device is busy with products", rules=(), steps=5,
            shapes=False),
    Watched("wav2vec", kineto.V100, wav2vec, "nothing: the device is busy, one wait at the end of a step", rules=(),
            steps=7, marked=False, runtime=Third),
    Watched("starcoder", kineto.MI300X, starcoder, "nothing: the device is busy with products", rules=(), steps=6,
            rocm=True),
    Watched("clicks", kineto.A100, clicks, "nothing: the device is busy, its memory is the bound", rules=(), steps=10),
    Watched("falcon", kineto.A100, falcon, "nothing: gradients travel beside the backward pass", rules=(), steps=5,
            shapes=False),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
