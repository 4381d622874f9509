"""Sixteen jobs of the most ordinary kind, unlike those of the set before; each without its fault is its truth.

Drawn 29 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and layout,
two between ranks. Most are also reported: sigsep/open-unmix-pytorch#35 and descriptinc/melgan-neurips#19 (sounds that
are read in the loop), binli123/dsmil-wsi#90 (features of slides), espnet/espnet#2482 (a length regulator phoneme by
phoneme), open-mmlab/OpenPCDet#1057 and V2AI/Det3D#168 (targets cloud by cloud and class by class),
automan000/Convolutional_LSTM_PyTorch#11 (cells in a loop), vllm-project/vllm#16 (RMSNorm op by op),
ultralytics/yolov3#75 and sgl-project/SpecForge#739 (sizes that vary and memory in pieces), pytorch/pytorch#69282 and
#70235 (gathers in the backward pass), wenet-e2e/wenet#791 (gradients over Ethernet); a flag for bf16 that was forgotten
and a model that stays NCHW are as many run them. What must be said first, and what not, stands with each.

What they cost, ms of a step (`drawn_traces.py` computes it): mels 48.7 of 166, bags 20.0 of 28.0, regulated 52.5 of 124
(some 5 of it kernels of sums behind them), pillars 14.1 of 109, nowcast 15.2 of 27.0, smol 27.3 of 51.0, whispering 680
of 955, multiscale 30.1 of 249, planar 41.9 of 145, unprefetched 45.8 of 527, ethernet 58.9 of 256. Those without a
fault take: modern 250, nvlinked 299, organs 227, reranked 169, depths 388.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import multiscale, planar, whispering
from .healthy import depths, modern, nvlinked, organs, reranked
from .host import bags, mels, pillars, regulated
from .ranks import ethernet, unprefetched
from .small import nowcast, smol

_OUTER = ("<string>(1): <module>", "train.py(203): <module>", "train.py(77): main")
_STACKS = {"regulated": _OUTER, "depths": _OUTER}

JOBS = (
    Watched(
        "mels",
        kineto.V100,
        mels,
        "three workers compute too few spectra, the GPU waits for each batch",
        ("input-bound",),
        6,
        False,
        silent=("launch-bound", "pin_memory", "sync-in-loop", "small-batch", "TF32", "bfloat16"),
        runtime=Third,
    ),
    Watched(
        "bags",
        kineto.A10G,
        bags,
        "up to 161 MB a step are copied from memory that is not pinned, while no kernel runs",
        ("pageable-copies", "blocking-copies"),
        7,
        silent=("launch-bound", "small-batch", "num_workers", "TF32"),
    ),
    Watched(
        "regulated",
        kineto.RTX3090,
        regulated,
        "the host reads each phoneme's length, 1,344 waits a step while nothing is queued",
        ("sync-in-loop",),
        4,
        silent=("input-bound", "small-batch", "TF32", "unfused-optimizer", "every N steps"),
    ),
    Watched(
        "pillars",
        kineto.RTX4090,
        pillars,
        "targets are made cloud by cloud: masks become indices, padding is looked for by conditions, each a wait",
        ("sync-in-loop",),
        4,
        silent=("input-bound", "small-batch", "TF32", "unfused-optimizer", "every N steps"),
    ),
    Watched(
        "nowcast",
        kineto.A100,
        nowcast,
        "a ConvLSTM's cells are called in a loop over times and layers, launches take longer than kernels",
        ("launch-bound", "tensor-loop"),
        4,
        marked=False,
        silent=("input-bound", "TF32", "sync-in-loop", "unfused-optimizer"),
    ),
    Watched(
        "smol",
        kineto.H100,
        smol,
        "norms and rotations of a small model go op by op, launches take longer than kernels",
        ("launch-bound",),
        4,
        False,
        silent=("input-bound", "TF32", "sync-in-loop", "unfused-optimizer"),
    ),
    Watched(
        "whispering",
        kineto.A10G,
        whispering,
        "all products are fp32 on the CUDA cores, without autocast and without TF32",
        ("fp32-matmul",),
        3,
        silent=("input-bound", "launch-bound", "small-batch", "sync-in-loop"),
    ),
    Watched(
        "multiscale",
        kineto.RTX3090,
        multiscale,
        "memory is refused twice a step, what is cached is given back while the device has nothing to do",
        ("allocator-churn",),
        7,
        False,
        silent=("input-bound", "launch-bound", "TF32", "small-batch"),
    ),
    Watched(
        "planar",
        L40S_DEVICE,
        planar,
        "cuDNN turns tensors before and after each convolution: no channels_last",
        ("layout-transposes",),
        3,
        silent=("input-bound", "launch-bound", "small-batch", "TF32", "sync-in-loop"),
    ),
    Watched(
        "unprefetched",
        kineto.A100,
        unprefetched,
        "in the backward pass weights are gathered when their layer is reached, and nothing runs beside",
        ("exposed-communication", "late-shard-gathers"),
        3,
        False,
        silent=("no_sync", "bucket", "input-bound", "launch-bound", "sync-in-loop"),
    ),
    Watched(
        "ethernet",
        kineto.T4,
        ethernet,
        "gradients go in fp32 over Ethernet, their way ends long after the backward pass",
        ("exposed-communication",),
        4,
        silent=("input-bound", "launch-bound", "TF32", "bfloat16", "sync-in-loop"),
    ),
    Watched("modern", kineto.RTX4090, modern, "nothing: compiled, the device is busy", (), 5),
    Watched(
        "nvlinked",
        kineto.V100,
        nvlinked,
        "nothing: gradients travel beside the backward pass",
        (),
        4,
        False,
        runtime=Third,
    ),
    Watched("organs", kineto.A10G, organs, "nothing: batches come beside the step before", (), 5),
    Watched("reranked", kineto.L4, reranked, "nothing: graphs follow one another", (), 6, False, marked=False),
    Watched("depths", kineto.A100, depths, "nothing: what the host does is hidden", (), 4),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _STACKS.get(job.name, ())
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
