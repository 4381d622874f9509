"""How a later window of a run differs from the first: the step, its parts, and the lines and ops that moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from advisor.analyses.base.scale import Scale
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.ops import Ops
from advisor.analyses.step.step_counts import StepCounts
from advisor.computed import Computed
from advisor.model import Moved, OpRow, ProfiledWindow

# What moved by less than this share of the longer of two steps is left out: windows of some steps differ by as much.
_WORTH = 0.03
_MOST = 6


def window(computed: Computed, at: int, why: str, first: Computed | None = None) -> ProfiledWindow:
    """A window as the report shows it. at: training iterations before it; first: the window to compare it with."""
    scale = computed.get(Scale)
    return ProfiledWindow(
        at=at,
        why=why,
        steps=computed.get(Steps).count,
        step_us=scale.step_us,
        spread_us=(scale.unprofiled.p10, scale.unprofiled.p90),
        moved=tuple(_moved(first, computed)) if first is not None else (),
    )


def _moved(first: Computed, later: Computed) -> Iterator[Moved]:
    least_us = _WORTH * max(first.get(Scale).step_us, later.get(Scale).step_us)
    for kind in ("part", "line", "op"):
        before, after = _rows(kind, first), _rows(kind, later)
        if not before or not after:
            continue  # lines of one of the two were not recorded
        both = [
            Moved(kind, name, *_of(before.get(name)), *_of(after.get(name)))
            for name in dict.fromkeys((*before, *after))
        ]
        found = [one for one in both if abs(one.after_us - one.before_us) >= least_us]
        yield from sorted(found, key=lambda one: -abs(one.after_us - one.before_us))[:_MOST]


def _of(row: OpRow | None) -> tuple[float, float]:
    return (row.us, row.calls) if row is not None else (0.0, 0.0)


def _rows(kind: str, computed: Computed) -> dict[str, OpRow]:
    """Name -> time and calls per step, on the scale of the step without the profiler."""
    factor = computed.get(Scale).factor
    rows: Iterable[OpRow] = ()
    if kind == "part" and (breakdown := computed.find(Breakdown)):
        rows = [OpRow(item.id, "part", item.us, 0.0, item.share) for item in breakdown.items]
    elif kind == "line" and (counts := computed.find(StepCounts)):
        rows = counts.lines
    elif kind == "op" and (ops := computed.find(Ops)):
        rows = ops.kernels or ops.top
    return {row.name: OpRow(row.name, row.kind, row.us * factor, row.calls, row.share) for row in rows}
