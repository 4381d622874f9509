"""Sixteen jobs in the fixed mix, unlike those of the eight sets before; each without its fault is its truth.

Drawn 30 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and attention,
two between ranks, and five jobs without a fault. All are as many run them: epochs that are shorter than workers take to
begin, a script "for 8 GB" on a card of 24, MMDetection's assigner, transformers' loop over experts, MAML's inner steps,
Sinkhorn's iterations, MACE's default of float64, `save_on_cpu` that was left on, a mask that says nothing, one bucket
for all gradients, Lightning's `sync_dist` in each step. What must be said first, and what not, stands with each; which
rules may say it, another person fills in.

What they cost, ms of a step: epochs 192 of 349, shuttled 199 of 440, detr 36.4 of 145, mixtral 13.6 of 94.3, maml 18.6
of 34.9, superglue 24.6 of 49.5, mace 80.8 of 162, heldback 418 of 1,295, masked 230 of 794, onebucket 95.2 of 360,
chexpert 7.6 of 53.7. Those without a fault take: siglip 86.8, birds 177, llama1b 350, wikitext 175, postcards 184.
"""

from __future__ import annotations

from .. import kineto
from ..fifteenth_set.rows import B200_DEVICE, L40S_DEVICE
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from ..twenty_seventh_set.rows import A6000_DEVICE
from .device import Forced, Held, heldback, mace, masked
from .healthy import birds, llama1b, postcards, siglip, wikitext
from .inputs import epochs, shuttled
from .ranks import chexpert, onebucket
from .small import maml, superglue
from .waits import detr, mixtral

JOBS = (
    Watched(
        "epochs",
        kineto.T4,
        epochs,
        "an epoch has three batches, workers begin anew in each, the GPU waits until they have a batch",
        rules=("input-bound",),
        steps=10,
    ),
    Watched(
        "shuttled",
        kineto.RTX3090,
        shuttled,
        "a frozen text encoder and the VAE are moved to the GPU and back in each step, from and to pageable memory",
        rules=("blocking-copies", "pageable-copies"),
        steps=5,
        marked=False,
    ),
    Watched(
        "detr",
        kineto.A100,
        detr,
        "the assigner goes picture by picture and layer by layer by way of the host, some 170 waits a step",
        rules=("sync-in-loop",),
        steps=6,
    ),
    Watched(
        "mixtral",
        kineto.H100,
        mixtral,
        "a loop over experts asks the GPU which tokens each has, 96 waits in the forward pass",
        rules=("sync-in-loop", "launch-bound"),
        steps=6,
    ),
    Watched(
        "maml",
        kineto.RTX4090,
        maml,
        "inner steps of a small network for each task are thousands of small kernels, launches take longer",
        rules=("launch-bound", "tensor-loop"),
        steps=8,
        marked=False,
    ),
    Watched(
        "superglue",
        kineto.A100,
        superglue,
        "Sinkhorn's 100 iterations and small layers are small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=7,
    ),
    Watched(
        "mace",
        kineto.V100,
        mace,
        "all tensors and products are float64, as the script has it by default, where float32 would do",
        rules=("double-precision",),
        steps=6,
        runtime=Forced,
    ),
    Watched(
        "heldback",
        A6000_DEVICE,
        heldback,
        "what seven blocks save for the backward pass goes to the host's memory and back, tensor by tensor",
        rules=("blocking-copies",),
        steps=5,
        runtime=Held,
    ),
    Watched(
        "masked",
        kineto.A100,
        masked,
        "a mask that says nothing keeps attention from FlashAttention and from skipping half of the scores",
        rules=("dense-attention-mask",),
        steps=6,
        shapes=False,
    ),
    Watched(
        "onebucket",
        L40S_DEVICE,
        onebucket,
        "all gradients lie in one bucket, whose sum over ranks begins only when the backward pass is over",
        rules=("exposed-communication",),
        steps=6,
    ),
    Watched(
        "chexpert",
        kineto.A10G,
        chexpert,
        "30 values are logged with `sync_dist` in each step, each a barrier that the host waits for and a sum",
        rules=("exposed-communication", "sync-in-loop"),
        steps=9,
    ),
    Watched("siglip", kineto.MI300X, siglip, "nothing: the device is busy, gradients travel beside the work", rules=(),
            steps=6, rocm=True),
    Watched("birds", kineto.RTX4090, birds, "nothing: the device is busy, one wait at the end of a step", rules=(),
            steps=6),
    Watched("llama1b", B200_DEVICE, llama1b, "nothing: the device is busy with products", rules=(), steps=5,
            shapes=False),
    Watched("wikitext", kineto.L4, wikitext, "nothing: few and long kernels", rules=(), steps=7, marked=False),
    Watched("postcards", kineto.A10G, postcards, "nothing: the loader is late, but the host is ahead by more", rules=(),
            steps=8),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
