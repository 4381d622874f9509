"""Sixteen jobs as people run them; each without its fault is its truth.

Drawn 28 November 2026 without having read any rule, and before anything was analysed, after set-ups that the sets
before had not: speech that is resampled on the host, clips that are decoded on the GPU, hash tables, weights that are
pushed to a server, validation in between, splats, experts with room, rings of keys, FSDP2 over PCIe, float8 that is not
compiled; without a fault checkpointed activations, moving averages, Mamba-2, sparse voxels, graphs of whole steps.

What they cost, ms of a step (`drawn_traces.py` computes it): resampled 83.9 of 155, clips 119 of 399, uniqued 5.4 of
17.3, pushed 611 of 1,229, validated 92.1 of 221 (all in one of the steps), blurred 5.4 of 22.2, dispatched 72.2 of 241,
widened 30.8 of 130, ringed 637 of 1,801, resharded 391 of 1,246, eager8 90.1 of 251. Those without a fault take:
recomputed 2,478, smoothed 281, statespace 175, voxels 219, replaying 19.6. The first steps of clips and voxels are cold
and count for nothing.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import B200_DEVICE, L40S_DEVICE
from ..thirteenth_set import Watched
from ..thirteenth_set.rows import Fresh
from ..twelfth_set.rows import Framed
from .device import blurred, dispatched, eager8, validated, widened
from .healthy import RTX5090, recomputed, replaying, smoothed, statespace, voxels
from .host import clips, pushed, resampled, uniqued
from .ranks import Paced, resharded, ringed

_OUTER = ("<string>(1): <module>", "train.py(301): <module>", "train.py(142): train_one_epoch")
_STACKS = ("resampled", "pushed", "recomputed")

JOBS = (
    Watched("resampled", L40S_DEVICE, resampled, "waves are resampled on the host, one by one, in the loop",
            ("host-work", "input-bound", "idle-gpu", "pageable-copies"), 5,
            silent=("launch-bound", "small-batch", "every N steps")),
    Watched("clips", kineto.L4, clips, "the loop decodes clips one after another; the first step is cold",
            ("host-work", "input-bound", "idle-gpu"), 5, marked=False, runtime=Fresh,
            silent=("launch-bound", "small-batch", "pin_memory", "empty_cache")),
    Watched("uniqued", kineto.A100, uniqued, "distinct keys are looked for table by table, with a wait each",
            ("sync-in-loop", "launch-bound", "tensor-loop"), 8, silent=("input-bound", "every N steps", "pin_memory")),
    Watched("pushed", kineto.H100, pushed, "weights are sent to a server one by one", ("host-work", "idle-gpu"), 3,
            silent=("input-bound", "launch-bound", "small-batch", "no_sync")),
    Watched("validated", kineto.T4, validated, "validation is not under autocast", ("fp32-matmul", "slow-kernels"), 6,
            silent=("TF32", "bfloat16", "input-bound", "launch-bound")),
    Watched("blurred", kineto.RTX4090, blurred, "SSIM goes op by op with a plain depthwise kernel", ("slow-kernels",),
            20, silent=("input-bound", "launch-bound", "every N steps", "TF32")),
    Watched("dispatched", kineto.MI300X, dispatched, "experts' tokens are chosen by products with a mask",
            ("slow-kernels",), 3, rocm=True, silent=("launch-bound", "sync-in-loop", "TF32", "small-batch")),
    Watched("widened", kineto.A100, widened, "frames cross as float32 on the stream of the kernels",
            ("blocking-copies", "idle-gpu"), 6, False,
            silent=("pin_memory=True", "non_blocking=True", "launch-bound", "sync-in-loop")),
    Watched("ringed", kineto.H100, ringed, "the causal mask gives the last rank most to do", ("exposed-communication",),
            3, runtime=Paced, silent=("no_sync", "bucket", "input-bound", "launch-bound")),
    Watched("resharded", kineto.RTX4090, resharded, "each micro-batch gathers all weights twice",
            ("exposed-communication", "accumulation", "late-shard-gathers"), 3, False,
            silent=("input-bound", "launch-bound", "bucket_cap_mb")),
    Watched("eager8", B200_DEVICE, eager8, "casts to float8 go op by op", ("repeated-casts", "slow-kernels"), 3,
            silent=("input-bound", "sync-in-loop", "small-batch", "fp32-matmul")),
    Watched("recomputed", kineto.H100, recomputed, "nothing: memory needs it", (), 2,
            silent=("sync-in-loop", "launch-bound", "idle-gpu", "repeated-casts")),
    Watched("smoothed", kineto.A100, smoothed, "nothing", (), 8, False,
            silent=("launch-bound", "sync-in-loop", "unfused-optimizer", "idle-gpu")),
    Watched("statespace", kineto.H100, statespace, "nothing: reductions are hidden", (), 6,
            silent=("exposed-communication", "launch-bound", "no_sync", "slow-kernels")),
    Watched("voxels", kineto.RTX4090, voxels, "nothing worth a change: four reads beside all the work", (), 7,
            marked=False, runtime=Fresh, silent=("sync-in-loop", "launch-bound", "input-bound", "empty_cache")),
    Watched("replaying", RTX5090, replaying, "nothing: a graph a step", (), 20, False, marked=False,
            silent=("launch-bound", "sync-in-loop", "idle-gpu", "input-bound")),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _OUTER if job.name in _STACKS else ()
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
