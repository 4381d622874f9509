"""What differs between two reports, cause by cause: the body of `advisor compare` and of a regression's explanation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.gate import counters
from advisor.gate.model import Cause, Flagged, Row
from advisor.gate.stored import advisory_rows, findings_changed
from advisor.model import OpRow, Report

# Differences of a part or an op below this share of the step are the noise of two single profiles.
_LEAST_SHARE = 0.002
_MOST_ROWS = 12
# A report lists so many ops and kernels; a name that a full list lacks is not gone, only small.
FULL_LIST = 40
# Of each kind of cause the first few say it; the two reports hold the rest.
MOST_OF_A_KIND = 6


@dataclass(frozen=True, slots=True)
class Difference:
    """Two reports, compared.

    parts: breakdown ids on the scale of the un-profiled step, µs; ops: kernels and ops, µs per step.
    """

    base: str
    head: str
    step: Row
    parts: tuple[Row, ...]
    counters: tuple[Row, ...]
    ops: tuple[Cause, ...]
    advisory: tuple[Row, ...]
    new_findings: tuple[Flagged, ...]
    gone_findings: tuple[Flagged, ...]
    notes: tuple[str, ...] = ()


def difference(base: Report, head: Report, names: tuple[str, str]) -> Difference:
    """Everything that differs; nothing is judged."""
    rows = counters.compare(counters.counts_of(base), counters.counts_of(head), {})
    new, gone = findings_changed(base, head)
    notes = []
    if not (base.breakdown and head.breakdown):
        notes.append("the parts of the step were not recorded on both sides")
    elif {item.id for item in base.breakdown}.isdisjoint(item.id for item in head.breakdown):
        notes.append("the two breakdowns have no part in common: one ran on a device and the other without")
    return Difference(
        base=names[0],
        head=names[1],
        step=_step(base, head),
        parts=tuple(_parts(base, head)),
        counters=tuple(row for row in rows if row.status != "same"),
        ops=tuple(ops_changed(base, head)),
        advisory=tuple(row for row in advisory_rows(base, head) if row.status != "same" and row.id != "step_time_us"),
        new_findings=tuple(new),
        gone_findings=tuple(gone),
        notes=tuple(notes),
    )


def step_us(report: Report) -> float | None:
    """The report's step time in µs; None where it was not measured."""
    metric = report.metrics.get("step_time_us")
    return metric.value if metric and metric.status == "measured" else None


def _step(base: Report, head: Report) -> Row:
    before, after = step_us(base), step_us(head)
    return Row("step_time_us", "us", before, after, "moved" if before != after else "same")


def _parts(base: Report, head: Report) -> list[Row]:
    before, after = _breakdown_us(base), _breakdown_us(head)
    rows = [
        Row(id_, "us", before.get(id_, 0.0), after.get(id_, 0.0), "moved")
        for id_ in dict.fromkeys([*before, *after])
        if before.get(id_) or after.get(id_)
    ]
    return sorted(rows, key=lambda row: -abs(row.change or 0.0))


def _breakdown_us(report: Report) -> dict[str, float]:
    # Shares hold for the profiled window; times the step time they are on the scale that users feel.
    scale = step_us(report)
    return {item.id: item.share * scale if scale is not None else item.us for item in report.breakdown}


def ops_changed(base: Report, head: Report) -> list[Cause]:
    """Ops and kernels by the change of their time per step, largest first; new and gone ones included."""
    least = _LEAST_SHARE * max(step_us(base) or 0.0, step_us(head) or 0.0)
    causes = [*_changed("kernel", base.kernels, head.kernels, least), *_changed("op", base.ops, head.ops, least)]
    return sorted(causes, key=lambda cause: -abs(cause.change))[:_MOST_ROWS]


def _changed(kind: str, base: Sequence[OpRow], head: Sequence[OpRow], least: float) -> Iterable[Cause]:
    before, after = ({row.name: row.us for row in rows} for rows in (base, head))
    for name in {*before, *after}:
        cause = Cause(kind, name, before.get(name, _unlisted(base)), after.get(name, _unlisted(head)), "us")  # type: ignore[arg-type]
        if abs(cause.change) > least:
            yield cause


def _unlisted(rows: Sequence[OpRow]) -> float | None:
    """The time of a name that a side does not list: none, or, where its list is full, at most the least listed."""
    return None if len(rows) < FULL_LIST else min(row.us for row in rows)


def causes(base: Report, head: Report) -> list[Cause]:
    """Why a step takes another time: parts of the step, ops and kernels, changed counters; each largest first."""
    least = _LEAST_SHARE * max(step_us(base) or 0.0, step_us(head) or 0.0)
    parts = [row for row in _parts(base, head) if abs(row.change or 0.0) > least]
    rows = counters.compare(counters.counts_of(base), counters.counts_of(head), {})
    moved = [row for row in rows if row.status in ("worse", "better", "moved")]
    moved.sort(key=lambda row: (counters.DETAIL in row.id, -abs(row.change or 0.0) / max(row.base or 0.0, 1.0)))
    return [
        *(Cause("part", row.id, row.base, row.head, row.unit) for row in parts[:MOST_OF_A_KIND]),
        *ops_changed(base, head)[:MOST_OF_A_KIND],
        *(Cause("counter", row.id, row.base, row.head, row.unit, row.where) for row in moved[: 2 * MOST_OF_A_KIND]),
    ]
