"""Sixteen jobs in the fixed mix, unlike those of the four sets before; each without its fault is its truth.

Drawn 29 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, layout and attention,
two between ranks, and five jobs without a fault. All are as many run them: MONAI's tutorial without its cache, PyTorch
Geometric's batches that are not pinned, schedules of a diffusion in numpy, Lightning's bar, RAFT's refinements,
CORL's small networks, a teacher that Accelerate did not prepare, timm without `--channels-last`, attention slicing that
was left on, FSDP without a policy, answers of uneven lengths. What must be said first, and what not, stands with each;
which rules may say it, another person fills in.

What they cost, ms of a step: segresnet 51.1 of 109, sage 17.6 of 56.8, dit 2.6 of 36.3, tasnet 3.2 of 38.4, raft 20.2
of 47.9, iql 2.8 of 4.9, teacher 54.9 of 103, convnext 13.1 of 102, sliced 78.7 of 205, unwrapped 184 of 601, ragged
34.2 of 158. Those without a fault take: mae 132, mamba 267, embedded 377, regnet 320, accumulated 997.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import convnext, sliced, teacher
from .healthy import accumulated, embedded, mae, mamba, regnet
from .inputs import sage, segresnet
from .ranks import ragged, unwrapped
from .small import iql, raft
from .waits import dit, tasnet

JOBS = (
    Watched(
        "segresnet",
        L40S_DEVICE,
        segresnet,
        "two workers read and resample each volume anew, the GPU waits for batches",
        steps=9,
        rules=("input-bound",),
    ),
    Watched(
        "sage",
        kineto.A10G,
        sage,
        "batches of a sampled graph go to the GPU from memory that is not pinned, each copy waits",
        steps=9,
        marked=False,
        rules=("pageable-copies",),
    ),
    Watched(
        "dit",
        kineto.RTX4090,
        dit,
        "schedules lie in numpy and are copied to the GPU 14 times a step, each copy waits for all that is queued",
        steps=7,
        rules=("small-copies",),
    ),
    Watched(
        "tasnet",
        kineto.A100,
        tasnet,
        "the progress bar reads two values behind each batch, and the host's hooks come only then",
        steps=6,
        shapes=False,
        rules=("sync-in-loop",),
    ),
    Watched(
        "raft",
        kineto.H100,
        raft,
        "a loop that refines the flow launches small kernels, which takes longer than they run",
        steps=5,
        rules=("launch-bound",),
    ),
    Watched(
        "iql",
        kineto.L4,
        iql,
        "kernels of four small networks and three optimizers take less than their launches",
        steps=12,
        shapes=False,
        marked=False,
        rules=("launch-bound",),
    ),
    Watched(
        "teacher",
        kineto.H100,
        teacher,
        "the teacher is called outside of autocast, its products are fp32 without TF32",
        steps=6,
        rules=("fp32-matmul",),
    ),
    Watched(
        "convnext",
        kineto.RTX3090,
        convnext,
        "the model is NCHW: copies before norms, sums by strides, slow depthwise convolutions, turned tensors",
        steps=5,
        rules=("slow-kernels",),
    ),
    Watched(
        "sliced",
        kineto.A100,
        sliced,
        "attention slicing is on, attention goes slice by slice and writes its scores",
        steps=5,
        rules=("unfused-attention",),
    ),
    Watched(
        "unwrapped",
        L40S_DEVICE,
        unwrapped,
        "FSDP has one unit, all weights are gathered and all gradients scattered at once, nothing hides them",
        steps=5,
        shapes=False,
        rules=("exposed-communication", "late-shard-gathers"),
    ),
    Watched(
        "ragged",
        kineto.MI300X,
        ragged,
        "lengths differ between ranks, the reductions wait for the rank with the longest answers",
        steps=7,
        rocm=True,
        rules=("exposed-communication",),
    ),
    Watched("mae", kineto.H100, mae, "nothing: the device is busy", steps=5),
    Watched("mamba", kineto.RTX4090, mamba, "nothing: few and long kernels", steps=6, shapes=False),
    Watched("embedded", kineto.T4, embedded, "nothing: launches are far ahead of a slow card", steps=6, marked=False),
    Watched("regnet", kineto.V100, regnet, "nothing worth a change: one read beside much work", steps=5, runtime=Third),
    Watched(
        "accumulated",
        L40S_DEVICE,
        accumulated,
        "nothing: gradients travel once a step, beside the last backward pass",
        steps=5,
        shapes=False,
    ),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
