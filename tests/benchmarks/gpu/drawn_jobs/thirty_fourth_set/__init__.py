"""Sixteen jobs in the fixed mix, unlike those of the thirteen sets before; each without its fault is its truth.

Drawn 30 November 2026 without having read any rule, and before anything was analysed. The kinds of faults were fixed
before: two of input and copies, two of waits in the loop, two of launches, one each of precision, memory and attention,
two between ranks, and five jobs without a fault. All are as many run them: neighbours that a data set seeks anew in
each epoch, a cache from a notebook for small cards, anomaly mode that was left on, a server that draws its words user
by user, a world model without `compile=true`, circuits gate by gate, a model as `encode` loads it, `zero_grad` from an
old script, angles in fp32, an evaluation that gathers logits, experts over all ranks as an example has it. What must be
said first, and what not, stands with each; which rules may say it, another person fills in.

What they cost, ms of a step: painn 55.6 of 129, offcache 156 of 186, inversion 12.0 of 36.4, peruser 16.8 of 36.0,
tdmpc 12.5 of 18.9, quantum 40.2 of 51.2, bge 1,572 of 2,168, zeroed 14.0 of 149, angles 889 of 1,329, segval 83.4 of
325, epnodes 175 of 1,041. Those without a fault take: antibodies 637, titan8b 1,694, tensorrt 36.0, clouds 76.1, vllm
13.6.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..thirty_second_set.rows import A40_DEVICE, RTX4080_DEVICE
from ..thirty_third_set.rows import B200_DEVICE, H200_DEVICE, L40S_DEVICE, Ended, Kept, Marked
from ..twelfth_set.rows import Framed
from .device import angles, bge, zeroed
from .healthy import antibodies, clouds, tensorrt, titan8b, vllm
from .inputs import offcache, painn
from .ranks import epnodes, segval
from .rows import A100_PCIE_DEVICE, RTX4070_DEVICE, RTX5090_DEVICE, Added, Anomalous, Starved
from .small import quantum, tdmpc
from .waits import inversion, peruser

_STACKS = {
    "peruser": ("serve.py(143): <module>", "serve.py(118): run"),
    "bge": ("embed_abstracts.py(58): <module>", "sentence_transformers/SentenceTransformer.py(896): encode"),
}

JOBS = (
    Watched(
        "painn",
        A100_PCIE_DEVICE,
        painn,
        "four workers seek neighbours of atoms anew and too slowly, and the GPU waits for each batch",
        rules=("input-bound",),
        steps=8,
        runtime=Starved,
    ),
    Watched(
        "offcache",
        L40S_DEVICE,
        offcache,
        "2.9 GB of keys and values go to the host and come back for each word, although they have room",
        rules=("blocking-copies",),
        steps=5,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "inversion",
        RTX4070_DEVICE,
        inversion,
        "anomaly mode asks of each gradient whether it holds a NaN, 170 waits in each backward pass",
        rules=("sync-in-loop",),
        steps=7,
        runtime=Anomalous,
    ),
    Watched(
        "peruser",
        kineto.A10G,
        peruser,
        "words are drawn and read user by user, 56 waits for each word while the GPU idles",
        rules=("launch-bound", "sync-in-loop"),
        steps=10,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "tdmpc",
        RTX4080_DEVICE,
        tdmpc,
        "a world model is some 900 small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=6,
        runtime=Ended,
    ),
    Watched(
        "quantum",
        kineto.V100,
        quantum,
        "a circuit gate by gate is some 2,400 small kernels, which take longer to launch than to run",
        rules=("launch-bound",),
        steps=4,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "bge",
        kineto.L4,
        bge,
        "all products are fp32 on the CUDA cores, where fp16 would do",
        rules=("fp32-matmul",),
        steps=6,
        marked=False,
        runtime=Ended,
    ),
    Watched(
        "zeroed",
        kineto.RTX4090,
        zeroed,
        "gradients are filled with zeros and added to them, instead of being replaced",
        rules=("gradients-set-to-zero",),
        steps=7,
        runtime=Added,
    ),
    Watched(
        "angles",
        kineto.A100,
        angles,
        "rotary angles in fp32 make queries and keys fp32, for which there is no FlashAttention",
        rules=("fp32-matmul",),
        steps=5,
        runtime=Kept,
    ),
    Watched(
        "segval",
        A40_DEVICE,
        segval,
        "an evaluation gathers float32 logits of all ranks, 1.3 GB a step, and nothing hides it",
        rules=("exposed-communication",),
        steps=7,
        runtime=Marked,
    ),
    Watched(
        "epnodes",
        kineto.A100,
        epnodes,
        "experts lie on two nodes, tokens cross the network four times a layer and nothing hides it",
        rules=("exposed-communication",),
        steps=5,
        shapes=False,
        runtime=Marked,
    ),
    Watched("antibodies", kineto.MI300X, antibodies, "nothing: the device is busy with products", rules=(), steps=5,
            rocm=True, runtime=Ended),
    Watched("titan8b", H200_DEVICE, titan8b, "nothing: weights and gradients travel beside the work", rules=(), steps=4,
            shapes=False, runtime=Marked),
    Watched("tensorrt", kineto.T4, tensorrt, "nothing: the engine follows itself, copies are hidden", rules=(), steps=9,
            marked=False, shapes=False, runtime=Marked),
    Watched("clouds", RTX5090_DEVICE, clouds, "nothing: a compiled model, the device is busy", rules=(), steps=8,
            runtime=Ended),
    Watched("vllm", B200_DEVICE, vllm, "nothing: graphs follow one another, the host is a word ahead", rules=(),
            steps=12, marked=False, shapes=False, runtime=Marked),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _STACKS.get(job.name, ())
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
