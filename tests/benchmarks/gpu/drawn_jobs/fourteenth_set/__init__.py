"""Sixteen jobs as people run and report them; each without its fault is its truth.

Drawn 28 November 2026 without having read any rule, and before anything was analysed, after what is reported of such
jobs, among them huggingface/transformers#14428 (tokenizers as collators), pytorch/torchtitan#148 and
PrimeIntellect-ai/prime-rl#2145 (garbage collection stops the host), yl4579/StyleTTS2#217 (a writer of each step).

What they cost, ms of a step (`drawn_traces.py` computes it): tokenized 19.0 of 47.7, collected 71.2 of 210, histograms
379 of 454, normalized 28.2 of 155, shown 1.0 of 3.3, anomalous 5.7 of 18.5, emulated 332 of 408, micro 24.3 of 55.8,
offloading 33.3 of 261, in_turn 25.1 of 280, synced_norms 5.5 of 14.9.
"""

from __future__ import annotations

from .. import kineto
from ..thirteenth_set import Watched
from ..twelfth_set.rows import Framed
from .device import (
    accumulated,
    denoised,
    emulated,
    in_turn,
    lossy,
    micro,
    offloading,
    prefetched,
    single,
    synced_norms,
)
from .host import anomalous, collected, histograms, normalized, shown, tokenized

_OUTER = ("<string>(1): <module>", "train.py(260): <module>", "train.py(118): train_one_epoch")
_STACKS = ("tokenized", "collected", "histograms")

JOBS = (
    Watched("tokenized", kineto.A10G, tokenized, "texts are tokenized in the training process", ("input-bound",), 5,
            silent=("launch-bound", "pin_memory")),
    Watched("collected", kineto.H100, collected, "garbage is collected in each step", ("host-work", "idle-gpu"), 4,
            False, silent=("input-bound", "launch-bound")),
    Watched("histograms", kineto.RTX4090, histograms, "histograms of parameters in each step",
            ("blocking-copies", "sync-in-loop", "host-work"), 4, silent=("input-bound", "TF32")),
    Watched("normalized", kineto.L4, normalized, "pictures become float on the host, then are moved",
            ("host-work", "pageable-copies", "idle-gpu"), 6, silent=("launch-bound",)),
    Watched("shown", kineto.RTX4090, shown, "tensors are printed in each step", ("sync-in-loop",), 8,
            silent=("input-bound",)),
    Watched("anomalous", kineto.A10G, anomalous, "each node's gradient is looked at for NaN", ("sync-in-loop",), 4,
            silent=("input-bound",)),
    Watched("emulated", kineto.T4, emulated, "bf16 on a device without units for it", ("slow-kernels", "bf16"), 3,
            silent=("input-bound", "launch-bound", "TF32")),
    Watched("micro", kineto.H100, micro, "micro-batches of one short sequence", ("small-batch", "launch-bound"), 3,
            silent=("input-bound", "sync-in-loop")),
    Watched("offloading", kineto.RTX4090, offloading, "weights are moved for each layer",
            ("pageable-copies", "blocking-copies"), 6, marked=False, silent=("input-bound", "small-batch")),
    Watched("in_turn", kineto.A100, in_turn, "reductions wait for the backward pass", ("exposed-communication",), 4,
            silent=("input-bound", "no_sync")),
    Watched("synced_norms", kineto.A100, synced_norms, "norms wait for all ranks, layer by layer",
            ("exposed-communication", "small-collectives", "launch-bound"), 5, silent=("input-bound", "no_sync")),
    Watched("summed", kineto.RTX3090, accumulated, "nothing", (), 3, silent=("no_sync", "launch-bound")),
    Watched("fetched", kineto.RTX4090, prefetched, "nothing", (), 5, silent=("input-bound", "launch-bound")),
    Watched("painted", kineto.L4, denoised, "nothing", (), 5, marked=False, silent=("launch-bound", "small-batch")),
    Watched("pretrained", kineto.MI300X, single, "nothing", (), 2, False, rocm=True,
            silent=("launch-bound", "idle-gpu")),
    Watched("lossy", kineto.A100, lossy, "nothing: records of the device were lost", (), 6,
            silent=("launch-bound", "idle-gpu")),
)  # fmt: skip


def run(job: Watched, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    outer = _OUTER if job.name in _STACKS else ()
    rt = job.runtime(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked, outer=outer)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    return rt
