"""Why one rank comes later than the others: what it does more than they do, and what to change."""

from __future__ import annotations

import statistics

from msgspec import Struct

from advisor.api import Fix, Ranks, Source, duration

from ..shared._words import count

# Parts of the breakdown, by what a late rank has more of.
CAUSES = {
    "input": ("input", "idle_input"),
    "host": ("host", "other_ops", "idle_host", "idle_unknown"),
    "work": ("forward", "backward", "compute"),
    "update": ("optimizer",),
    "launch": ("idle_launch", "idle_sync"),
    "copy": ("exposed_copy",),
}
# Of the host's parts those in which no op runs.
_PYTHON = ("host", "idle_host")
# From this much more arithmetic on its batches are what differs; unequal-batches looks at the same ones.
MORE_WORK = 1.2
# Larger batches explain what takes longer by about as much as their arithmetic is more, be it computing or fetching;
# what a batch of any size costs is no part of that, so small ones are cheaper still.
_AS_MUCH = 3.0
# A cause is named where it is at least this part of what the rank does more.
_MAIN = 0.5


class Cause(Struct, frozen=True):
    """What a rank does more than the median of the others, profiled µs per step.

    id: a key of CAUSES; data (its batches are larger), gc, or mixed;  computing: the part of it in computation
    python_us: what of it is Python between the ops, where that is the cause: the profiler does not slow it
    """

    id: str
    us: float
    said: str
    where: tuple[Source, ...] = ()
    computing: float = 0.0
    python_us: float = 0.0


def cause_of(ranks: Ranks, position: int) -> Cause:
    """The largest of the causes, where it explains most of what the rank does more."""
    more = ranks.more_us(position)
    by_cause = {name: sum(more.get(part, 0.0) for part in parts) for name, parts in CAUSES.items()}
    all_us = sum(us for us in by_cause.values() if us > 0)
    computing = sum(max(by_cause[one], 0.0) for one in ("work", "update")) / all_us if all_us else 0.0
    name = max(by_cause, key=lambda one: by_cause[one])
    us = by_cause[name]
    part = max(CAUSES[name], key=lambda one: more.get(one, 0.0))
    if us < _MAIN * all_us or us <= 0:
        return Cause("mixed", max(all_us, 0.0), "several parts of its step take longer", (), computing)
    paused_us = _paused_us(ranks, position)
    if name in ("host", "work", "input", "update") and paused_us >= _MAIN * us:
        return Cause("gc", us, f"Python's garbage collector pauses it {duration(paused_us)} a step longer")
    where = ranks.lines_of(position, part)[:3]
    ratio = work_ratio(ranks, position)
    if ratio is not None and ratio >= MORE_WORK and _longer(ranks, position, CAUSES[name]) <= _AS_MUCH * ratio:
        return Cause("data", us, f"its batches need {count(ratio)} times the arithmetic of the others'", where)
    python_us = max(sum(more.get(one, 0.0) for one in _PYTHON), 0.0) if name == "host" else 0.0
    return Cause(name, us, _said(ranks, position, name, us, python_us), where, computing, python_us)


def plain_us(ranks: Ranks, us: float, python_us: float) -> float:
    """So much of the profiled step without the profiler. It slows ops; Python between them takes as long as ever."""
    scale = ranks.scale
    python_us = min(us, python_us)
    return min(scale.scaled(us - python_us) + max(python_us, scale.scaled(python_us)), scale.step_us)


def _said(ranks: Ranks, position: int, name: str, us: float, python_us: float) -> str:
    longer = duration(plain_us(ranks, us, python_us))
    if name != "work":
        return f"its {_NAMES[name]} takes {longer} more"
    ratio = work_ratio(ranks, position)
    same = ratio is not None and ratio < MORE_WORK
    return f"it takes {longer} more for the same arithmetic" if same else f"its computation takes {longer} more"


_NAMES = {
    "input": "input",
    "host": "Python code between ops",
    "update": "optimizer step",
    "launch": "kernel launching",
    "copy": "copying between host and device",
}


def work_ratio(ranks: Ranks, position: int) -> float | None:
    """Arithmetic of a rank against the median of the others; None where shapes do not tell."""
    if ranks.flops is None:
        return None
    mean = ranks.flops.mean(axis=1)
    others = statistics.median(float(mean[other]) for other in range(len(mean)) if other != position)
    return float(mean[position]) / others if others else None


def _longer(ranks: Ranks, position: int, parts: tuple[str, ...]) -> float:
    """How many times as long as the median of the others a rank is in these parts; infinite where they never are."""
    mean = sum(us.mean(axis=1) for part, us in ranks.parts_us.items() if part in parts)
    spent = [float(us) for us in mean] if not isinstance(mean, int) else []
    others = statistics.median(us for rank, us in enumerate(spent) if rank != position) if spent else 0.0
    return spent[position] / others if others else float("inf")


def _paused_us(ranks: Ranks, position: int) -> float:
    """How much longer per step the garbage collector stops a rank than the median of the others; 0 where unknown."""

    def paused(at: int) -> float:
        record, steps = ranks.facts[at].record, ranks.facts[at].scale.unprofiled.n
        return sum(record.gc_pauses_us or ()) / steps if record and steps else 0.0

    others = [paused(other) for other in range(len(ranks.ranks)) if other != position]
    return max(0.0, paused(position) - statistics.median(others))


def fix_of(cause: Cause) -> Fix:
    """Lines that take the cause away."""
    if cause.id == "gc":
        return COLLECT_TOGETHER
    return _FIXES.get(cause.id, _LOOK)


COLLECT_TOGETHER = Fix(
    "Call `gc.collect()` on all ranks at the same step",
    "exact",
    "for step, batch in enumerate(loader):",
    "gc.disable()\nfor step, batch in enumerate(loader):\n    if step % 500 == 0:\n        gc.collect()",
)
_FIXES = {
    "host": Fix(
        "Do what only this rank does every few hundred steps, or in a background thread",
        "exact",
        "if rank == 0:\n    report(metrics)",
        "if rank == 0 and step % 200 == 0:\n    report(metrics)",
    ),
    "input": Fix(
        "Prefetch with loader workers, and load the same number of samples on each rank",
        "exact",
        "loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)",
        "loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=2, persistent_workers=True)",
    ),
}
_LOOK = Fix("Check what else runs on this rank's cores and device", "exact", "", "nvidia-smi dmon -s puct\ntop -H")
