"""Sixteen jobs in the fixed mix, unlike those of the ten sets before; each without its fault is its truth.

Drawn 30 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and
convolutions, two between ranks, and five jobs without a fault. All are as many run them: a `DataLoader` as it is by
default over a pandas frame, volumes that are not pinned, a CRF that decodes in training, Apex' LARC, a search over
cells, DeepAR hour by hour, `run_mlm.py` without a flag, a setting of the allocator from a forum, depthwise convolutions
without their extension, FSDP under autocast without `MixedPrecision`, a table of 250,002 words in DDP. What must be
said first, and what not, stands with each; which rules may say it, another person fills in.

What they cost, ms of a step: patchtst 50.8 of 110, ctslices 41.0 of 134, bertcrf 77.5 of 359, larc 21.3 of 133, darts
32.8 of 123, deepar 29.3 of 83.5, patents 344 of 595, oversize 21.6 of 212, unireplk 64.0 of 137, fsdp32 235 of 1,170,
widetable 34.3 of 317. Those without a fault take: qwen 621, densenet 101, whisperlora 342, wan 1,220, layoutlm 293.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import oversize, patents, unireplk
from .healthy import densenet, layoutlm, qwen, wan, whisperlora
from .inputs import ctslices, patchtst
from .ranks import fsdp32, widetable
from .rows import A5000_DEVICE, B200_DEVICE, Told
from .small import darts, deepar
from .waits import bertcrf, larc

JOBS = (
    Watched(
        "patchtst",
        kineto.RTX3090,
        patchtst,
        "the loader has no workers, the loop cuts each window out of a frame itself and the GPU waits for batches",
        rules=("input-bound",),
        steps=8,
        runtime=Told,
    ),
    Watched(
        "ctslices",
        kineto.H100,
        ctslices,
        "302 MB a step are copied from memory that is not pinned, while no kernel runs",
        rules=("pageable-copies",),
        steps=9,
        marked=False,
        runtime=Told,
    ),
    Watched(
        "bertcrf",
        kineto.A10G,
        bertcrf,
        "a CRF decodes each batch for a score and reads tag by tag, 1,800 waits a step while the GPU idles",
        rules=("sync-in-loop",),
        steps=5,
        runtime=Told,
    ),
    Watched(
        "larc",
        kineto.H100,
        larc,
        "the optimizer asks of each parameter whether its norms are zero, 324 waits a step",
        rules=("sync-in-loop",),
        steps=7,
        runtime=Told,
    ),
    Watched(
        "darts",
        kineto.RTX4090,
        darts,
        "all operations of all edges are small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=5,
        marked=False,
        runtime=Told,
    ),
    Watched(
        "deepar",
        kineto.T4,
        deepar,
        "a loop over hours calls the LSTM each time, launches of small kernels take longer than they run",
        rules=("recurrent-positions", "launch-bound", "tensor-loop"),
        steps=7,
        runtime=Told,
    ),
    Watched(
        "patents",
        kineto.MI300X,
        patents,
        "all products and tensors are fp32, without autocast in bf16",
        rules=("fp32-matmul",),
        steps=6,
        rocm=True,
        runtime=Told,
    ),
    Watched(
        "oversize",
        A5000_DEVICE,
        oversize,
        "blocks may not be split, so the allocator gives them back and asks anew nine times a step, each a wait",
        rules=("allocator-churn",),
        steps=8,
        runtime=Told,
    ),
    Watched(
        "unireplk",
        kineto.A100,
        unireplk,
        "depthwise convolutions of 13 x 13 run by PyTorch's generic kernel on the CUDA cores",
        rules=("slow-kernels",),
        steps=6,
        runtime=Told,
    ),
    Watched(
        "fsdp32",
        kineto.A10G,
        fsdp32,
        "FSDP has no mixed precision, weights and gradients travel in fp32 over PCIe and the work does not hide them",
        rules=("exposed-communication",),
        steps=5,
        shapes=False,
        runtime=Told,
    ),
    Watched(
        "widetable",
        kineto.L4,
        widetable,
        "gradients of a table of 250,002 words travel in fp32 behind the backward pass, nothing hides them",
        rules=("exposed-communication",),
        steps=6,
        runtime=Told,
    ),
    Watched("qwen", kineto.H100, qwen, "nothing: weights and gradients travel beside the work", rules=(), steps=5,
            shapes=False, runtime=Told),
    Watched("densenet", kineto.A100, densenet, "nothing: the device is busy, its memory is the bound", rules=(),
            steps=7, runtime=Told),
    Watched("whisperlora", kineto.L4, whisperlora, "nothing: launches are far ahead of a slow card", rules=(), steps=5,
            marked=False, runtime=Told),
    Watched("wan", B200_DEVICE, wan, "nothing: the device is busy with attention and products", rules=(), steps=5,
            shapes=False, runtime=Told),
    Watched("layoutlm", kineto.T4, layoutlm, "nothing: a slow card is busy, one wait at the end of a step", rules=(),
            steps=6, runtime=Told),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
