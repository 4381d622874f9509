"""Sixteen jobs as people run and report them; each without its fault is its truth.

Drawn 28 November 2026 without having read any rule, and before anything was analysed, after what is reported of such
jobs: pytorch/pytorch#15849 and metatensor/metatrain#1271 (workers start anew with each epoch),
lucidrains/ema-pytorch#5 (a moving average on the host), Lightning-AI/pytorch-lightning#19955 and
pytorch/pytorch#128208 (Adam's counters on the GPU after a resume), meta-pytorch/torchtune#2066 and
turbo-llm/turbo-alignment#47 (rollouts without a cache), bitsandbytes-foundation/bitsandbytes#347 and #490 (8 bit is
slower), sgl-project/SpecForge#739 (lengths that leave memory in pieces), pytorch/pytorch#174051 and
sgl-project/sglang#23200 (`Conv3d` by `slow_conv_dilated3d`), ROCm/MIOpen#3310 (naive convolutions),
sgl-project/SpecForge#566 (FSDP of one unit), modelscope/ms-swift#725 and huggingface/trl#2256 (devices that take
turns), sb-ai-lab/RePlay#100 (`sync_dist` in each step).

What they cost, ms of a step (`drawn_traces.py` computes it): respawned 310 of 417, averaged 106 of 141, resumed 15.5
of 49.1, uncached 242 of 508, quantized 39.1 of 54.0, squeezed 143 of 1089, patched 64.1 of 263, naive 272 of 333,
unwrapped 28.1 of 189, split 391 of 672, synced_logs 1.4 of 11.0. respawned's window holds two starts of an epoch.
split is computed with DDP of half the batch a device, uncached with eager decoding, whose launches bind it.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..thirteenth_set.rows import Pair
from ..twelfth_set.rows import Framed
from .device import naive, patched, split, synced_logs, unwrapped
from .healthy import embedded, titan, varied, volumes, whole
from .host import averaged, quantized, respawned, resumed, squeezed, uncached
from .rows import B200_DEVICE, L40S_DEVICE, MI250X_DEVICE, Third

_OUTER = ("<string>(1): <module>", "train.py(260): <module>", "train.py(118): train_one_epoch")
_STACKS = ("respawned", "averaged", "uncached")

JOBS = (
    Watched("respawned", kineto.RTX4090, respawned, "workers start anew with each short epoch",
            ("input-bound", "idle-gpu"), 12, silent=("launch-bound", "TF32")),
    Watched("averaged", kineto.RTX3090, averaged, "the moving average of the weights lies on the host",
            ("blocking-copies", "pageable-copies", "host-work", "sync-in-loop"), 5,
            silent=("input-bound", "small-batch", "pin_memory=True")),
    Watched("resumed", kineto.A100, resumed, "Adam's counters lie on the GPU and are read one by one",
            ("sync-in-loop",), 5, silent=("input-bound", "every N steps")),
    Watched("uncached", kineto.H100, uncached, "each token passes the whole text: no cache",
            ("slow-kernels", "use_cache"), 3, silent=("input-bound", "sync-in-loop")),
    Watched("quantized", kineto.A100, quantized, "8 bit: outliers are looked for in each product",
            ("launch-bound", "sync-in-loop", "idle-gpu"), 6, marked=False, silent=("input-bound", "every N steps")),
    Watched("squeezed", kineto.L4, squeezed, "memory is full: cached memory is freed again and again",
            ("allocator-churn",), 6, False, silent=("input-bound", "launch-bound", "empty_cache")),
    Watched("patched", kineto.H100, patched, "a convolution goes patch by patch", ("slow-kernels", "launch-bound"), 3,
            silent=("input-bound", "sync-in-loop")),
    Watched("naive", MI250X_DEVICE, naive, "a naive kernel convolves", ("slow-kernels",), 4, rocm=True,
            silent=("input-bound", "launch-bound", "TF32")),
    Watched("unwrapped", kineto.A100, unwrapped, "all weights are one unit of FSDP",
            ("exposed-communication", "late-shard-gathers"), 4, silent=("no_sync", "input-bound", "launch-bound")),
    Watched("split", kineto.RTX3090, split, "two devices take turns", ("idle-gpu", "pipeline-bubble", "data-parallel"),
            4, runtime=Pair, silent=("input-bound", "no_sync", "pin_memory")),
    Watched("synced_logs", kineto.V100, synced_logs, "values for the log are reduced behind barriers",
            ("sync-in-loop", "small-collectives", "exposed-communication"), 6, runtime=Third,
            silent=("input-bound", "no_sync", "TF32")),
    Watched("titan", B200_DEVICE, titan, "nothing: all is hidden", (), 3, False,
            silent=("exposed-communication", "launch-bound", "idle-gpu")),
    Watched("volumes", kineto.RTX3090, volumes, "nothing: the device is busy", (), 4,
            silent=("sync-in-loop", "input-bound", "launch-bound")),
    Watched("varied", kineto.V100, varied, "nothing: steps differ as their batches do", (), 8, False, runtime=Third,
            silent=("input-bound", "idle-gpu", "bfloat16", "TF32")),
    Watched("whole", kineto.L4, whole, "nothing worth a change: four reads beside all the work", (), 8, marked=False,
            silent=("sync-in-loop", "launch-bound", "small-batch")),
    Watched("embedded", L40S_DEVICE, embedded, "nothing: what was computed is fetched", (), 5, marked=False,
            silent=("sync-in-loop", "idle-gpu", "pageable-copies")),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _OUTER if job.name in _STACKS else ()
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
