"""Sixteen jobs in the fixed mix, unlike those of the six sets before; each without its fault is its truth.

Drawn 30 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and attention,
two between ranks, and five jobs without a fault. All are as many run them: X-rays that are decoded anew in each epoch,
masks with a plane for each class, ESPnet's texts by boolean masks, PyTorch Geometric's dense batches, a network for
phones on a fast card, a loop over spikes, SDXL's VAE that is "always in float32", checkpointing from somebody's
configuration, FlexAttention that was not compiled, ZeRO 3 for a model that fits, a pipeline of as many parts as stages.
What must be said first, and what not, stands with each; which rules may say it, another person fills in.

What they cost, ms of a step: xray 104 of 211, planes 16.6 of 77.0, espnet 9.2 of 48.2, peptides 3.4 of 27.5, mobilenet
3.9 of 14.1, spiking 13.9 of 24.2, sdxl 209 of 857, smollm 168 of 699, unfused 40.9 of 110, zero3 94.2 of 388, bubbles
463 of 1,491. Those without a fault take: instinct 652, nafnet 155, nnunet 187, qlora 3,395, vith 358.
"""

from __future__ import annotations

from .. import kineto
from ..eighteenth_set.rows import Remembered
from ..fifteenth_set.rows import L40S_DEVICE, Third
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import sdxl, smollm, unfused
from .healthy import instinct, nafnet, nnunet, qlora, vith
from .inputs import planes, xray
from .ranks import bubbles, zero3
from .rows import A6000_DEVICE, H100_PCIE_DEVICE
from .small import mobilenet, spiking
from .waits import espnet, peptides

JOBS = (
    Watched(
        "xray",
        kineto.V100,
        xray,
        "six workers decode and shrink large X-rays too slowly, the GPU waits for batches",
        rules=("input-bound",),
        steps=10,
        runtime=Third,
    ),
    Watched(
        "planes",
        kineto.RTX4090,
        planes,
        "masks come as a plane of float32 for each class, 352 MB a step are copied in the stream that computes",
        rules=("blocking-copies",),
        steps=7,
        marked=False,
    ),
    Watched(
        "espnet",
        kineto.A100,
        espnet,
        "texts are taken by boolean masks of the GPU behind the encoder, accuracies are read, 22 waits a step",
        rules=("sync-in-loop",),
        steps=6,
    ),
    Watched(
        "peptides",
        kineto.RTX3090,
        peptides,
        "each layer reads of the GPU how large its dense batch is and which nodes are real, 17 waits a step",
        rules=("sync-in-loop",),
        steps=8,
    ),
    Watched(
        "mobilenet",
        kineto.H100,
        mobilenet,
        "some 500 small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=9,
    ),
    Watched(
        "spiking",
        kineto.L4,
        spiking,
        "a loop over steps of time launches small kernels, which takes longer than they run",
        rules=("launch-bound", "tensor-loop"),
        steps=8,
        marked=False,
    ),
    Watched(
        "sdxl",
        kineto.A100,
        sdxl,
        "the VAE encodes pictures in fp32 in each step, what reads them is in bf16",
        rules=("fp32-matmul",),
        steps=5,
        shapes=False,
    ),
    Watched(
        "smollm",
        kineto.A100,
        smollm,
        "layers are computed again in the backward pass, while most of the memory is free",
        rules=("recomputed-activations",),
        steps=5,
        shapes=False,
        runtime=Remembered,
    ),
    Watched(
        "unfused",
        kineto.H100,
        unfused,
        "FlexAttention was not compiled, it writes its scores in fp32 and goes over them op by op",
        rules=("unfused-elementwise", "unfused-attention"),
        steps=6,
    ),
    Watched(
        "zero3",
        H100_PCIE_DEVICE,
        zero3,
        "each weight is gathered from four ranks when its turn comes, forward and behind, nothing runs meanwhile",
        rules=("exposed-communication",),
        steps=5,
        shapes=False,
    ),
    Watched(
        "bubbles",
        kineto.A100,
        bubbles,
        "a pipeline of four stages has four micro-batches, three of seven turns are waits for other stages",
        rules=("pipeline-bubbles", "exposed-communication"),
        steps=5,
        shapes=False,
    ),
    Watched("instinct", kineto.MI300X, instinct, "nothing: gathers and reductions travel beside the work", rules=(),
            steps=5, shapes=False, rocm=True),
    Watched("nafnet", A6000_DEVICE, nafnet, "nothing: the device is busy, its memory is the bound", rules=(), steps=6),
    Watched("nnunet", kineto.V100, nnunet, "nothing worth a change: two waits at the end of a long step", rules=(),
            steps=7, marked=False, runtime=Third),
    Watched("qlora", kineto.T4, qlora, "nothing: a slow card is busy, its memory is full", rules=(), steps=5),
    Watched("vith", L40S_DEVICE, vith, "nothing: the device is busy with products", rules=(), steps=6),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
