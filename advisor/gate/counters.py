"""Counters of a report: what a step does, counted; the same on every run of the same code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.gate.model import Row
from advisor.model import Metric, Report, Unit

# Counts of the report's metrics that the gate holds, and by how much each may grow as a share of its base.
# Peak memory moves by an allocator block with the order of frees; 1 % is above that and below any tensor that matters.
TOLERANCES: Mapping[str, float] = {
    "collective_bytes": 0.0,
    "collectives": 0.0,
    "compiled_regions": 0.0,
    "copies": 0.0,
    "cpu_ops": 0.0,
    "d2h_bytes": 0.0,
    "device_allocs": 0.0,
    "graph_breaks": 0.0,
    "h2d_bytes": 0.0,
    "h2d_pageable_bytes": 0.0,
    "kernels": 0.0,
    "launches": 0.0,
    "peak_memory_bytes": 0.01,
    "recompiles": 0.0,
    "scalar_reads": 0.0,
    "syncs": 0.0,
}
# More of these is not worse, only different: it says that the two sides did not run the same training.
NEUTRAL = ("optimizer_steps_per_step",)
DETAIL = ":"  # `op:aten::mul`, `sync:train.py train aten::item`: parts of a total; they explain and never decide


@dataclass(frozen=True, slots=True)
class Count:
    """One counter of one run: its value per step; `steady` says that every step had the same value.

    low, high: the range over the steps; None where only the mean is known.
    """

    id: str
    unit: Unit
    value: float | None
    steady: bool = True
    why: str = ""
    where: str = ""
    low: float | None = None
    high: float | None = None


def counts_of(report: Report) -> dict[str, Count]:
    """All counters of a report by id. Unmeasured ones are there, with their reason and without a value."""
    found = {id_: _from_metric(m) for id_, m in report.metrics.items() if id_ in TOLERANCES or id_ in NEUTRAL}
    for counter in report.counters:
        steady = len(set(counter.per_step)) <= 1
        mean = sum(counter.per_step) / len(counter.per_step) if counter.per_step else None
        known = found.get(counter.id)
        value = known.value if known and known.value is not None else mean
        where = f"{counter.where.file}:{counter.where.line}" if counter.where else ""
        low, high = min(counter.per_step, default=None), max(counter.per_step, default=None)
        why = _unsteady(counter.per_step)
        found[counter.id] = Count(counter.id, counter.unit, value, steady, why, where, low, high)
    return dict(sorted(found.items()))


def _from_metric(metric: Metric) -> Count:
    value = metric.value if metric.status == "measured" else None
    # A metric is a total over whole steps divided by the steps: a fraction means that the steps differed.
    steady = value is None or metric.id in NEUTRAL or float(value).is_integer()
    why = metric.why if value is None else "" if steady else "its mean over the steps is not a whole number"
    return Count(metric.id, metric.unit, value, steady, why)


def _unsteady(per_step: tuple[float, ...]) -> str:
    if len(set(per_step)) <= 1:
        return ""
    return f"between {min(per_step):,.0f} and {max(per_step):,.0f} in the steps of one run"


def compare(base: Mapping[str, Count], head: Mapping[str, Count], tolerances: Mapping[str, float]) -> list[Row]:
    """One row per counter that either side measured; totals first, then details that differ."""
    rows = []
    for id_ in sorted({*base, *head}, key=lambda id_: (DETAIL in id_, id_)):
        row = _row(id_, base.get(id_), head.get(id_), tolerances)
        if row and not (DETAIL in id_ and row.status == "same"):
            rows.append(row)
    return rows


def is_total(id_: str) -> bool:
    """Whether a counter may decide: it is no part of another, and more of it is worse."""
    return DETAIL not in id_ and id_ not in NEUTRAL


def _row(id_: str, base: Count | None, head: Count | None, tolerances: Mapping[str, float]) -> Row | None:
    before, after = _value(id_, base, head), _value(id_, head, base)
    known = head or base
    assert known is not None
    if before is None and after is None:
        return None
    gated = is_total(id_)
    where = (head.where if head else "") or (base.where if base else "")
    tolerance = tolerances.get(id_, TOLERANCES.get(id_, 0.0))
    row = Row(id_, known.unit, before, after, "same", gated, _limit(tolerance) if gated else "", where=where)
    if before is None or after is None:
        missing = base if before is None else head
        reason = (missing.why if missing else "") or "it is absent"
        # What only the head measures cannot have regressed, and there is nothing to hold it against.
        return _with(row, "not measured", f"not measured in the {'base' if before is None else 'head'}: {reason}")
    if not (_steady(base) and _steady(head)):
        if _beyond(base, head, tolerance):
            return _with(row, _status(id_, before, after, tolerance), "in every step, although the steps differ")
        unsteady = next(side for side in (head, base) if not _steady(side))
        return _with(row, "unsteady", unsteady.why if unsteady else "")
    return _with(row, _status(id_, before, after, tolerance))


def _value(id_: str, side: Count | None, other: Count | None) -> float | None:
    # An op or a call site that a side does not list did not happen there, if that side lists any of its kind.
    if side is None:
        return 0.0 if DETAIL in id_ and other is not None else None
    return side.value


def _steady(side: Count | None) -> bool:
    return side is None or side.steady


def _beyond(base: Count | None, head: Count | None, tolerance: float) -> bool:
    """Whether the least step of the head does more than the most of the base: no mixture of steps explains that."""
    if base is None or head is None:
        return False
    most = base.value if base.steady else base.high
    least = head.value if head.steady else head.low
    return most is not None and least is not None and least > most + tolerance * abs(most)


def _status(id_: str, before: float, after: float, tolerance: float) -> str:
    if abs(after - before) <= tolerance * abs(before):
        return "same"
    if id_ in NEUTRAL or DETAIL in id_:
        return "moved"
    return "worse" if after > before else "better"


def _limit(tolerance: float) -> str:
    return "exact" if tolerance == 0 else f"within {tolerance:.3g} of the base"


def _with(row: Row, status: str, why: str = "") -> Row:
    gated = row.gated and status not in ("unsteady",)
    return Row(row.id, row.unit, row.base, row.head, status, gated, row.limit, why, row.where)  # type: ignore[arg-type]
