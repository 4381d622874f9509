"""Sixteen jobs as people run and report them; each without its fault is its truth.

Drawn 29 November 2026 without having read any rule, and before anything was analysed, after what is reported of such
jobs: NVIDIA/nvidia-docker#757, moby/moby#38839 and kubernetes/kubernetes#67577 (a container's quota of processors),
Project-Strix/Strix#56 and Lightning-AI/pytorch-lightning#4200 (pictures that are logged in each step),
huggingface/transformers#22378 (a causal mask that is built on the host), NVlabs/stylegan2-ada-pytorch#97 (plugins that
were not built), speedinghzl/Pytorch-Deeplab#1 (`cudnn.enabled = False`), RobertRiachi/nanoPALM#6 and
NVIDIA/DeepLearningExamples#534 (a vocabulary of an odd size), fla-org/flash-linear-attention#1147 and #533 (kernels
that are tuned for each length), pytorch/pytorch#132714 and #117281 (graphs that are skipped silently),
pytorch/pytorch#48743, Toni-SM/skrl#233 and ray-project/ray#50440 (distributions that check their arguments),
huggingface/accelerate#1245 and #2162 (rank 0 reads for all), pytorch/pytorch#169461 and
mlcommons/algorithmic-efficiency#467 (`optimize_ddp = False`). What must be said first, and what not, stands with each.

What they cost, ms of a step (`drawn_traces.py` computes it): throttled 45.6 of 193, pictured 200 of 235 (copies 4.5 of
it), masking 30.0 of 338 (the copy 10.6), refiltered 64.1 of 303, uncudnn 26.5 of 78.2, odd_vocab 33.8 of 288, autotuned
382 of 1,237 (all in two of the steps, 770 each), skipped 2.2 of 3.8, ladder 15.1 of 85.8, relayed 129 of 412, undivided
103 of 383. Those without a fault take: policy 729, latents 299, alternating 80.2 (123 where it trains, 48.5 where it
evaluates), autoencoder 213, fsdp2 2,030.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .convolved import uncudnn
from .filters import refiltered
from .healthy import alternating, autoencoder, fsdp2, latents, policy
from .host import Throttled, masking, pictured, throttled
from .language import autotuned, odd_vocab
from .ranks import relayed, undivided
from .small import ladder, skipped

_OUTER = ("<string>(1): <module>", "train.py(231): <module>", "train.py(104): main")
_STACKS = ("pictured", "relayed")

JOBS = (
    Watched(
        "throttled",
        kineto.T4,
        throttled,
        "the host stands still for 60 of each 100 ms, the container has used its processors' time, the GPU waits",
        ("idle-gpu", "host-work"),
        5,
        False,
        silent=("small-batch", "TF32", "bfloat16", "sync-in-loop", "launch-bound"),
        runtime=Throttled,
    ),
    Watched(
        "pictured",
        kineto.RTX4090,
        pictured,
        "three grids of pictures are encoded for TensorBoard after each step, while the GPU waits",
        ("host-work", "idle-gpu"),
        4,
        silent=("input-bound", "launch-bound", "small-batch", "TF32"),
    ),
    Watched(
        "masking",
        kineto.A100,
        masking,
        "the causal mask is built on the host and moved, widened, from memory that is not pinned, in each forward pass",
        ("host-work", "blocking-copies", "pageable-copies"),
        4,
        silent=("input-bound", "launch-bound", "small-batch"),
    ),
    Watched(
        "refiltered",
        kineto.V100,
        refiltered,
        "filters and activations go op by op, the plugins with their kernels were not built",
        ("slow-kernels",),
        4,
        silent=("input-bound", "small-batch", "TF32", "bfloat16"),
    ),
    Watched(
        "uncudnn",
        kineto.RTX3090,
        uncudnn,
        "convolutions unroll and multiply each picture by itself, cuDNN is switched off",
        ("slow-kernels",),
        3,
        silent=("input-bound", "small-batch", "TF32"),
    ),
    Watched(
        "odd_vocab",
        kineto.A100,
        odd_vocab,
        "the head's 50,257 classes keep its products from aligned loads",
        ("slow-kernels",),
        4,
        silent=("input-bound", "launch-bound", "small-batch", "TF32", "fp32-matmul"),
    ),
    Watched(
        "autotuned",
        kineto.H100,
        autotuned,
        "Triton tunes both kernels of a convolution anew for each number of tokens",
        ("recompiles", "slow-kernels", "sync-in-loop"),
        5,
        False,
        silent=("input-bound", "small-batch", "launch-bound"),
    ),
    Watched(
        "skipped",
        kineto.H100,
        skipped,
        "200 short kernels of compiled code are launched one by one, CUDA graphs were skipped",
        ("launch-bound",),
        12,
        marked=False,
        silent=("input-bound", "sync-in-loop", "recompiles", "graph-breaks"),
    ),
    Watched(
        "ladder",
        kineto.MI300X,
        ladder,
        "distributions check their arguments, the host waits for 128 values a step",
        ("sync-in-loop",),
        3,
        rocm=True,
        silent=("input-bound", "small-batch", "every N steps", "TF32"),
    ),
    Watched(
        "relayed",
        kineto.L4,
        relayed,
        "rank 0 reads and tokenizes for all, the others wait for its broadcast",
        ("input-bound", "exposed-communication"),
        4,
        False,
        silent=("no_sync", "bucket", "launch-bound", "small-batch", "pin_memory"),
    ),
    Watched(
        "undivided",
        kineto.RTX4090,
        undivided,
        "the compiled backward pass is one graph, gradients are reduced after it, nothing runs beside",
        ("exposed-communication",),
        3,
        False,
        silent=("input-bound", "launch-bound", "no_sync", "recompiles", "sync-in-loop"),
    ),
    Watched("policy", kineto.H100, policy, "nothing: the device is busy, one read in each update", (), 3, False),
    Watched("latents", kineto.A100, latents, "nothing: compiled, the device is busy", (), 5),
    Watched(
        "alternating",
        kineto.RTX3090,
        alternating,
        "nothing: half of the steps are an evaluation's",
        (),
        8,
        marked=False,
    ),
    Watched("autoencoder", kineto.MI300X, autoencoder, "nothing: the host is ahead", (), 4, rocm=True),
    Watched("fsdp2", kineto.A100, fsdp2, "nothing: weights and gradients travel beside the layers", (), 3, False),
)


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _OUTER if job.name in _STACKS else ()
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
