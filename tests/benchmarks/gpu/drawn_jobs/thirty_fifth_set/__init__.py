"""Sixteen jobs in the fixed mix, unlike those of the fourteen sets before; each without its fault is its truth.

Drawn 1 December 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and attention,
two between ranks, and five jobs without a fault. All are as many run them: RecBole's loader as its settings are by
default, photographs of splats in the host's memory, Pyro's checks of distributions, rewards that are logged term by
term, Muon matrix by matrix, a lattice op by op, bitsandbytes' compute dtype as it is by default, a validation without
`no_grad`, packed texts with a mask, Gloo where NCCL was meant, context parallelism without its balance. What must be
said first, and what not, stands with each; which rules may say it, another person fills in.

What they cost, ms of a step: lightgcn 37.5 of 75.3, roofs 20.3 of 87.2, sales 10.8 of 48.1, legged 3.2 of 9.2, muon
24.4 of 54.0, lattice 29.0 of 38.7, fourbit 973 of 1,353, hoarded 36.2 of 54.3, packmask 584 of 1,006, gloo 123 of 306,
zigzag 2,335 of 5,952. Those without a fault take: flux 688, vjepa 113, rewarded 1,191, clipscore 635, drones 144.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..thirty_first_set.rows import A5000_DEVICE
from ..thirty_fourth_set.rows import A100_PCIE_DEVICE
from ..thirty_third_set.rows import A6000_DEVICE, H200_DEVICE, L40S_DEVICE, Ended, Marked
from ..twelfth_set.rows import Framed
from .device import fourbit, hoarded, packmask
from .healthy import clipscore, drones, flux, rewarded, vjepa
from .inputs import lightgcn, roofs
from .ranks import gloo, zigzag
from .rows import RTX3060_DEVICE, RTX5080_DEVICE, Taking
from .small import lattice, muon
from .waits import legged, sales

_STACKS = {
    "lightgcn": ("run_books.py(31): <module>", "recbole/quick_start/quick_start.py(94): run_recbole",
                 "recbole/trainer/trainer.py(420): fit"),
    "legged": ("train_dog.py(84): <module>", "legs/ppo/runner.py(131): learn"),
}  # fmt: skip

JOBS = (
    Watched(
        "lightgcn",
        RTX3060_DEVICE,
        lightgcn,
        "the main process draws negatives one by one between batches, and the GPU waits for each batch",
        rules=("input-bound",),
        steps=6,
        runtime=Ended,
    ),
    Watched(
        "roofs",
        A5000_DEVICE,
        roofs,
        "128 MB of a photograph are copied from memory that is not pinned in each step, while the GPU waits",
        rules=("pageable-copies",),
        steps=6,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "sales",
        kineto.V100,
        sales,
        "distributions ask the GPU whether what they are given is allowed, some 90 waits in each forward pass",
        rules=("sync-in-loop",),
        steps=6,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "legged",
        L40S_DEVICE,
        legged,
        "means of rewards are read term by term, 22 waits after each move while the GPU idles",
        rules=("sync-in-loop",),
        steps=12,
        shapes=False,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "muon",
        kineto.H100,
        muon,
        "the optimizer turns matrices one by one, some 3,000 small kernels that take longer to launch than to run",
        rules=("launch-bound",),
        steps=5,
        runtime=Ended,
    ),
    Watched(
        "lattice",
        A100_PCIE_DEVICE,
        lattice,
        "a fluid op by op is some 60 small kernels a step, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=5,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "fourbit",
        A6000_DEVICE,
        fourbit,
        "all products of layers are fp32 on the CUDA cores, since weights of four bits are unpacked to fp32",
        rules=("fp32-matmul",),
        steps=5,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "hoarded",
        kineto.A100,
        hoarded,
        "a validation keeps the activations of each batch, so that memory is asked of the driver for each op",
        rules=("allocator-churn",),
        steps=5,
        runtime=Taking,
    ),
    Watched(
        "packmask",
        kineto.H100,
        packmask,
        "packed texts are kept apart by a mask, so that attention computes scores between all of them",
        rules=(),
        steps=5,
        runtime=Ended,
    ),
    Watched(
        "gloo",
        kineto.T4,
        gloo,
        "gradients are summed on the host by Gloo, and the backward pass ends late",
        rules=("host-backend",),
        steps=6,
        runtime=Marked,
    ),
    Watched(
        "zigzag",
        kineto.H100,
        zigzag,
        "the last rank has the most to look back at, all others wait for it in each layer",
        rules=("exposed-communication",),
        steps=4,
        shapes=False,
        runtime=Marked,
    ),
    Watched("flux", H200_DEVICE, flux, "nothing: compiled blocks, the device is busy", rules=(), steps=5,
            runtime=Ended),
    Watched("vjepa", kineto.H100, vjepa, "nothing: compiled layers, gradients travel beside the work", rules=(),
            steps=6, shapes=False, runtime=Marked),
    Watched("rewarded", kineto.MI300X, rewarded, "nothing: the device is busy with products", rules=(), steps=5,
            marked=False, rocm=True, runtime=Ended),
    Watched("clipscore", kineto.L4, clipscore, "nothing: one graph follows another, copies are hidden", rules=(),
            steps=8, marked=False, shapes=False, runtime=Marked),
    Watched("drones", RTX5080_DEVICE, drones, "nothing: graphs follow one another, the host is an iteration ahead",
            rules=(), steps=6, shapes=False, runtime=Marked),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _STACKS.get(job.name, ())
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
