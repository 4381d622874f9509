"""Whether what the advice names did change: fewer ops, less wait for data, as counted in both processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from advisor.model import Counted, Mechanism, Treatment
from advisor.trying.pairing import Measured

# What is shown of each counter, with its unit.
NAMES = {
    "wait_us": ("wait for data", "us"),
    "gc_us": ("garbage collection", "us"),
    "cpu_us": ("CPU time", "us"),
    "ops": ("ops", ""),
    "kernels": ("kernels and copies on the device", ""),
    "syncs": ("waits for the device", ""),
    "copied": ("aten::copy_", ""),
    "zeroed": ("aten::zero_", ""),
    "lowered": ("ops on bf16 or fp16", ""),
    "double": ("ops on float64", ""),
    "reductions": ("all-reduces", ""),
    "freed": ("cudaFree", ""),
}
# Counters that a treatment is made for; one that moves is enough. +: rises.
_OF = {
    "autocast": ("+lowered",),
    "batch": ("ops", "kernels"),
    "compile": ("ops", "kernels"),
    "ddp": ("reductions", "copied"),
    "gc": ("gc_us",),
    "in_float32": ("double",),
    "kept_on_device": ("syncs",),
    "loader": ("wait_us", "syncs"),
    "no_sync": ("reductions",),
    "non_blocking": ("syncs",),
    "optimizer": ("ops", "kernels"),
    "set_to_none": ("zeroed",),
    "threads": ("cpu_us", "+cpu_us"),
}
_OF_CALLS = {
    "gc.collect": ("gc_us",),
    "torch.autograd.detect_anomaly": ("ops",),
    "torch.autograd.set_detect_anomaly": ("ops",),
    "torch.cuda.empty_cache": ("freed",),
    "torch.cuda.synchronize": ("syncs",),
    "torch.set_default_dtype": ("double",),
    "torch.set_num_threads": ("cpu_us", "+cpu_us"),
}


def of_pairs(found: Sequence[Measured]) -> tuple[Counted, ...]:
    """What differs between the sides, for the work of one step of the script as it is; medians over the pairs."""
    counted = []
    for key, (name, unit) in NAMES.items():
        both = [
            (one.base.counts[key], one.head.counts[key] / one.work)
            for one in found
            if key in one.base.counts and key in one.head.counts
        ]
        if both:
            base, changed = (statistics.median(side) for side in zip(*both, strict=True))
            if base or changed:
                counted.append(Counted(name, base, changed, unit))
    return tuple(counted)


def judge(treatments: Sequence[Treatment], counters: Sequence[Counted], saved_us: float) -> Mechanism:
    """Whether any counter moved that the treatments are made for. saved_us: what the step became shorter."""
    wanted = [name for one in treatments for name in _wanted(one)]
    known = {one.name: one for one in counters}
    moves = [_moved(known[NAMES[key][0]], up, saved_us) for key, up in map(_way, wanted) if NAMES[key][0] in known]
    if not moves:
        return "unknown"
    return "moved" if any(moves) else "not moved"


def _wanted(treatment: Treatment) -> tuple[str, ...]:
    if treatment.name == "calls":
        return tuple(key for name in treatment.arguments["names"] for key in _OF_CALLS.get(name, ()))
    return _OF.get(str(treatment.arguments.get("edit", treatment.name)), ())


def _way(wanted: str) -> tuple[str, bool]:
    return wanted.removeprefix("+"), wanted.startswith("+")


def _moved(
    counter: Counted,
    up: bool,
    saved_us: float,
    *,
    least_us: float = 0.25,  # of the saved time: a wait that shrank by less does not explain it
    least_cpu: float = 0.1,  # of the CPU time: it repeats to a few per cent
    least: float = 0.5,  # a thing in every second step: less is a matter of which steps were counted
) -> bool:
    change = (counter.changed - counter.base) * (1 if up else -1)
    if counter.name == NAMES["cpu_us"][0]:
        return change >= least_cpu * counter.base
    return change >= (least_us * max(saved_us, 0.0) if counter.unit else least) and change > 0
