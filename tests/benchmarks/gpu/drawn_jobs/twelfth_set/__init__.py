"""Sixteen ordinary jobs, as people run them and send traces of; each without its fault is its truth.

Drawn 27 November 2026 without having read any rule, and before anything was analysed, after what is reported of such
jobs: pytorch/pytorch#31474 (norms of gradients read one by one), pytorch/pytorch#43201 and huggingface/accelerate#106
(accumulation without `no_sync`), Lightning-AI/pytorch-lightning#1986 (a log of each step), thu-ml/tianshou#483 (PPO
beside an idle GPU), huggingface/diffusers#4505 (frozen encoders in the loop), and scripts that many begin with: HF
Trainer, torchvision's references, diffusers' examples, CleanRL, DCGAN, vLLM. Recorded as people do: stacks or none,
shapes or none, rows of steps or none, one window cut at either end, rank 0 of several.

What they cost, ms of a step (`drawn_traces.py` computes it): adapted 318 of 1,023, starved 227 of 346, detected 6.7 of
120.4, diffused 124 of 555 (by TF32; bf16 gains more), recommended 10.1 of 15.4, stepped 17.1 of 31.1, served 1.9 of
10.8, segmented 7.8 of 142.4, tabular 6.2 of 7.9, reduced 39.9 of 805.5, played 62.2 of 177.8 (environments six times as
fast). Of `cut` the whole steps take 686. Besides: the losses of adapted and reduced go over logits in fp32 op by op,
the optimizer of tabular is one of lists, what the loop of played launches is small.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import kineto
from ..eighth_set import Recording
from .language import adapted, compiled, cut, reduced, served, sharded
from .pictures import adversarial, detected, diffused, segmented, starved, transformed
from .rows import Framed
from .small import played, recommended, stepped, tabular


@dataclass(frozen=True)
class Watched(Recording):
    """frames: open while the window lasts; empty: without stacks."""

    frames: tuple[str, ...] = ()


_TRAIN = ("<string>(1): <module>", "train.py(310): <module>", "train.py(287): main", "train.py(118): train_one_epoch")
_DP = ("exposed-communication", "small-batch", "no_sync")

JOBS = (
    Watched("adapted", kineto.H100, adapted, "attention is eager", ("slow-kernels", "repeated-casts"), 3,
            silent=("launch-bound", "sync-in-loop", "fp32-matmul")),
    Watched("starved", kineto.V100, starved, "workers are too few, memory is not pinned",
            ("input-bound", "pageable-copies", "blocking-copies"), 5, False, frames=_TRAIN,
            silent=("bfloat16", "TF32", "launch-bound")),
    Watched("detected", kineto.A100, detected, "memory is not pinned, targets are moved key by key",
            ("pageable-copies", "blocking-copies", "sync-in-loop"), 4,
            silent=("input-bound", "small-batch")),
    Watched("diffused", kineto.A100, diffused, "products in fp32 without TF32", ("fp32-matmul",), 3,
            silent=("launch-bound", "input-bound")),
    Watched("recommended", kineto.T4, recommended, "features are collated and moved one by one in the loop",
            ("input-bound", "pageable-copies", "blocking-copies"), 5, silent=("bfloat16", "TF32", "small-batch")),
    Watched("stepped", kineto.RTX3090, stepped, "a cell in a loop over tokens",
            ("slow-kernels", "tensor-loop", "launch-bound"), 4, False, marked=False,
            silent=("input-bound", "small-batch")),
    Watched("served", kineto.MI300X, served, "no graphs: `enforce_eager`", ("launch-bound",), 5, False, True,
            marked=False, silent=("every N steps", "input-bound", "small-batch")),
    Watched("segmented", kineto.RTX4090, segmented, "the norm of each gradient is read", ("sync-in-loop",), 4, False,
            frames=_TRAIN, silent=("input-bound", "launch-bound")),
    Watched("tabular", kineto.L4, tabular, "rows of a table are taken one by one", ("input-bound",), 5, frames=_TRAIN,
            silent=("fp32-matmul",)),
    Watched("reduced", kineto.A10G, reduced, "gradients are reduced in each micro-batch",
            ("needless-reductions", "exposed-communication", "accumulation"), 2,
            silent=("launch-bound", "sync-in-loop", "input-bound")),
    Watched("played", kineto.L4, played, "environments step one after another on the host", ("idle-gpu",), 2,
            False, marked=False, frames=("<string>(1): <module>", "ppo.py(158): <module>"),
            silent=("input-bound", "small-batch", "pin_memory")),
    Watched("transformed", kineto.H100, transformed, "nothing: reductions are hidden", (), 4, silent=_DP),
    Watched("sharded", kineto.H100, sharded, "nothing: gathers and reductions are hidden", (), 3, silent=_DP),
    Watched("cut", kineto.A100, cut, "nothing: adapters by Liger's kernels, a window cut at either end", (), 5, False,
            marked=False, silent=("launch-bound", "sync-in-loop", "idle-gpu")),
    Watched("adversarial", kineto.V100, adversarial, "nothing worth a change: seven reads beside all the work", (), 3,
            silent=("TF32", "bfloat16", "launch-bound")),
    Watched("compiled_whole", kineto.MI300X, compiled, "nothing: compiled, the device is busy", (), 2, rocm=True,
            silent=("launch-bound", "TF32")),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    rt = Framed(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=job.frames)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
