"""Two reports side by side: the body of `advisor compare`. Pure; nothing is judged, and what a side lacks is said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from advisor.gate.comparison.certainty import change_of
from advisor.gate.comparison.model import Compared, Comparison, FindingChange, Mover, Movers
from advisor.gate.difference import FULL_LIST, difference
from advisor.gate.model import Flagged, Row
from advisor.gate.same_places import named_alike, same_lines
from advisor.gate.stored import findings_by_place
from advisor.model import OpRow, Report
from advisor.quantities import duration

# Differences below this share of the longer step are the noise of two single profiles.
_LEAST_SHARE = 0.002
_MOST_ROWS = 12
# A saving is a range, fitted or replayed; a change of less than a fifth of it is no news.
_SAVING_MOVED = 0.2
# Warnings of a report; it has all of them.
_MOST_DOUBTS = 3
# Fractions of a sample per step are those of a last batch.
_SAMPLES_MOVED = 0.02


def compare(base: Report, head: Report, names: tuple[str, str]) -> Comparison:
    """Everything that differs. names: how the two are called."""
    found = difference(base, named_alike(base, head), names)
    a, b = _side(base, names[0]), _side(head, names[1])
    common = not {item.id for item in base.breakdown}.isdisjoint(item.id for item in head.breakdown)
    return Comparison(
        a=a,
        b=b,
        change=change_of(a, b),
        step=found.step,
        parts=found.parts if common else tuple(_recorded(found.parts, base, head)),
        waterfall=_waterfall(base, head, found.parts) if common else (),
        movers=_movers(base, head),
        counters=found.counters,
        ops=found.ops,
        advisory=found.advisory,
        new_findings=found.new_findings,
        gone_findings=found.gone_findings,
        changed_findings=tuple(sorted(_findings_moved(base, head), key=lambda pair: -_saving_change_us(pair))),
        notes=(*found.notes, *_notes(a, b, base, head), *_doubts("A", base), *_doubts("B", head)),
        base=names[0],
        head=names[1],
    )


def _side(report: Report, name: str) -> Compared:
    steps = report.steps
    profiled = steps.unprofiled_us.n == 0
    return Compared(
        name=name,
        command=report.run.command,
        devices=report.run.devices,
        versions={key: report.run.versions[key] for key in sorted(report.run.versions)},
        steps=steps.count,
        step_us=report.step_us,
        times=steps.profiled_us if profiled else steps.unprofiled_us,
        series_us=steps.series_us,
        profiled=profiled,
        samples=_samples(report),
    )


def _samples(report: Report) -> float | None:
    """Samples of a step: the throughput is that of a mean step, as `advisor/analyses/step/rates.py` has it."""
    rate = report.metrics.get("samples_per_second")
    steps = report.steps
    mean_us = steps.unprofiled_us.mean or steps.unprofiled_us.median or steps.profiled_us.mean or report.step_us
    return rate.value * mean_us / 1e6 if rate and rate.value is not None and mean_us else None


def _recorded(parts: Iterable[Row], base: Report, head: Report) -> Iterable[Row]:
    """The parts of two breakdowns of different kinds: what a side cannot have is not known, and no nothing."""
    before, after = ({item.id for item in report.breakdown} for report in (base, head))
    for row in parts:
        ends = row.base if row.id in before else None, row.head if row.id in after else None
        yield replace(row, base=ends[0], head=ends[1])


def _waterfall(base: Report, head: Report, parts: Iterable[Row]) -> tuple[Row, ...]:
    """The parts in the order of a step; their changes sum to that of the step, because shares sum to 1."""
    if not base.step_us or not head.step_us:
        return ()
    order = [item.id for item in (*base.breakdown, *head.breakdown)]
    return tuple(sorted(parts, key=lambda row: order.index(row.id)))


def _movers(base: Report, head: Report) -> tuple[Movers, ...]:
    least = _LEAST_SHARE * max(base.step_us or 0.0, head.step_us or 0.0)
    kernels = _listed(base.kernels), _listed(head.kernels)
    ops = _listed(base.ops), _listed(head.ops)
    before, after = same_lines(base, head)
    return (
        _moved("kernel", *kernels, least),
        _moved("op", *ops, least),
        _moved("line", _listed(before), _listed(after), least),
        _moved("module", _modules(base), _modules(head), least),
    )


Times = dict[str, tuple[float, float | None]]


def _listed(rows: Sequence[OpRow]) -> Times:
    """name -> (µs, calls) per step."""
    return {row.name: (row.us, row.calls) for row in rows}


def _modules(report: Report) -> Times:
    """A module's own time: forward and backward on the host and, with a device, the work that both launched."""
    rows = report.modules.rows if report.modules else ()
    found: Times = {}
    for row in rows:
        host = [us for us in (row.forward_own_us, row.backward_own_us) if us is not None]
        us = row.device_own_us if row.device_own_us is not None else sum(host) if host else None
        if us is not None:
            found[row.path or "(the model itself)"] = (us, row.calls)
    return found


def _moved(kind: str, before: Times, after: Times, least: float) -> Movers:
    if not before or not after:
        sides = [name for name, one in (("A", before), ("B", after)) if not one]
        return Movers(kind, missing=f"not recorded in {' and '.join(sides)}")  # type: ignore[arg-type]
    rows = [_mover(name, before, after) for name in dict.fromkeys([*before, *after])]
    moved = sorted((row for row in rows if abs(row.change_us) > least), key=lambda row: -abs(row.change_us))
    return Movers(kind, tuple(moved[:_MOST_ROWS]), left_out=max(len(moved) - _MOST_ROWS, 0))  # type: ignore[arg-type]


def _mover(name: str, before: Times, after: Times) -> Mover:
    base, head = before.get(name), after.get(name)
    first, second = (base or (_unlisted(before), None)), (head or (_unlisted(after), None))
    bound = (
        "base" if base is None and first[0] is not None else "head" if head is None and second[0] is not None else ""
    )
    return Mover(name, first[0], second[0], first[1], second[1], bound)  # type: ignore[arg-type]


def _unlisted(times: Mapping[str, tuple[float, float | None]]) -> float | None:
    """The time of a name that a side does not list: none, or, where its list is full, at most the least listed."""
    return min(us for us, _ in times.values()) if len(times) >= FULL_LIST else None


def _findings_moved(base: Report, head: Report) -> Iterable[FindingChange]:
    before, after = findings_by_place(base), findings_by_place(head)
    for place, new in after.items():
        old = before.get(place)
        if old is not None and (old.severity != new.severity or _saving_moved(old, new)):
            yield FindingChange(old, new)


def _saving_moved(old: Flagged, new: Flagged) -> bool:
    if old.high_us is None or new.high_us is None:
        return old.high_us is not new.high_us
    return abs(new.high_us - old.high_us) > _SAVING_MOVED * max(old.high_us, new.high_us)


def _saving_change_us(pair: FindingChange) -> float:
    """By how much what a finding can save differs; its whole saving where only one side gives a number."""
    return abs((pair.head.high_us or 0.0) - (pair.base.high_us or 0.0))


def _notes(a: Compared, b: Compared, base: Report, head: Report) -> Iterable[str]:
    if a.devices != b.devices:
        yield f"A ran on {_devices(a)}, B on {_devices(b)}"
    if a.command and b.command and _words(a.command) != _words(b.command):
        yield f"the commands differ: {' '.join(_words(a.command))} and {' '.join(_words(b.command))}"
    different = [key for key in ("torch", "cuda", "rocm", "hip", "python") if _differ(a, b, key)]
    if different:
        yield "versions differ: " + "; ".join(f"{key} {a.versions[key]} and {b.versions[key]}" for key in different)
    if base.run.world_size != head.run.world_size:
        yield f"A has {base.run.world_size} ranks, B {head.run.world_size}"
    if base.steps.source != head.steps.source:
        yield f"steps were detected by {base.steps.source} in A and by {head.steps.source} in B"
    if a.samples and b.samples and abs(b.samples / a.samples - 1.0) > _SAMPLES_MOVED:
        yield f"samples per step: {_per_sample(a)} in A, {_per_sample(b)} in B; compare the time per sample"


def _doubts(side: str, report: Report) -> list[str]:
    """Why a side's figures are doubtful: a busy machine changes a step more than most fixes do."""
    said = [f"{side}: {one.message}" for one in report.health if one.status in ("warning", "error")]
    return said[:_MOST_DOUBTS]


def _per_sample(side: Compared) -> str:
    """How many samples a step has, and the time of one; only for a side that knows both."""
    return f"{side.samples or 0.0:,.0f} ({duration((side.step_us or 0.0) / (side.samples or 1.0))} each)"


def _differ(a: Compared, b: Compared, key: str) -> bool:
    first, second = a.versions.get(key), b.versions.get(key)
    return bool(first and second and first != second)


def _devices(side: Compared) -> str:
    names = list(dict.fromkeys(side.devices))
    return ", ".join(names) if names else "no recorded device"


def _words(command: Sequence[str]) -> list[str]:
    """The command without folders, which differ between two checkouts of one script."""
    return [PurePosixPath(word).name if re.search(r"[/\\]", word) else word for word in command]
