"""What a history says: a series for each workload and environment, and where its level changed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from advisor.errors import INCONCLUSIVE, OK, REGRESSION, USAGE
from advisor.gate.files import GateError
from advisor.gate.history import change_points
from advisor.gate.history.model import Changed, History, Point, Series
from advisor.gate.history.results_file import Entry

# Rates are better when larger; of everything else less is better.
_LARGER_IS_BETTER = ("samples_per_second", "mfu", "device_busy_share")


def history(
    entries: Sequence[Entry], damaged: Iterable[str], name: str, metric: str, margin: float, since: str = ""
) -> History:
    """The history of `metric`. since: a commit (or its beginning) from which on changes count for the exit status.

    Raises GateError where no line has the metric, or none is of `since`.
    """
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Entry]] = {}
    for entry in entries:
        if metric in entry.metrics:
            groups.setdefault((entry.workload, tuple(sorted(entry.fingerprint.items()))), []).append(entry)
    if not groups:
        known = sorted({id_ for entry in entries for id_ in entry.metrics})
        raise GateError(f"{name}: no result has '{metric}'; it has {', '.join(known) or 'no results'}", INCONCLUSIVE)
    if since and not any(entry.commit.startswith(since) for entry in entries):
        raise GateError(f"{name}: no result is of commit '{since}'", USAGE)
    series = tuple(_series(group, metric) for group in groups.values())
    return History(name, series, tuple(damaged), _exit_code(series, margin, since))


def _series(entries: Sequence[Entry], metric: str) -> Series:
    first = entries[0]
    points = _points(entries, metric)
    values = [point.value for point in points]
    unit = first.units.get(metric, "")
    if len(points) < change_points.LEAST:
        why = f"changes are searched for in {change_points.LEAST} or more commits"
        return Series(first.workload, first.fingerprint, metric, unit, points, (), None, why)
    if min(values) <= 0:
        why = "a value is zero or negative, so relative changes are undefined"
        return Series(first.workload, first.fingerprint, metric, unit, points, (), None, why)
    logs = np.log(np.array(values))
    found = tuple(_changed(shift, points, metric) for shift in change_points.shifts(logs))
    noise = float(np.std(np.diff(logs))) / math.sqrt(2)
    return Series(first.workload, first.fingerprint, metric, unit, points, found, noise)


def _points(entries: Sequence[Entry], metric: str) -> tuple[Point, ...]:
    """One for each commit; results without a commit, or of changed files, are each of their own."""
    groups: dict[str, list[Entry]] = {}
    for number, entry in enumerate(entries):
        alone = entry.dirty or not entry.commit
        groups.setdefault(f"{entry.commit}#{number}" if alone else entry.commit, []).append(entry)
    return tuple(
        Point(
            f"{group[0].commit}{'+' * group[0].dirty}" or f"result {number}",
            group[0].when,
            statistics.median(entry.metrics[metric] for entry in group),
            len(group),
        )
        for number, group in enumerate(groups.values(), 1)
    )


def _changed(shift: change_points.Shift, points: Sequence[Point], metric: str) -> Changed:
    before, after = math.exp(shift.before), math.exp(shift.after)
    share = after / before - 1.0
    length = shift.last - shift.first
    return Changed(
        kind=shift.kind,
        worse=(share < 0) == metric.startswith(_LARGER_IS_BETTER),
        first=points[shift.first].commit,
        last=points[shift.last].commit,
        at=(shift.first, shift.last),
        before=before,
        after=after,
        share=share,
        p=shift.p,
        per_commit=math.expm1((shift.after - shift.before) / length) if shift.kind == "drift" else None,
    )


def _exit_code(series: Sequence[Series], margin: float, since: str) -> int:
    known = [one for one in series if not one.why]
    for one in known:
        start = next((i for i, point in enumerate(one.points) if since and point.commit.startswith(since)), 0)
        last = one.changes[-1] if one.changes else None
        if last and last.worse and abs(last.share) > margin and last.at[1] > start:
            return REGRESSION
    return OK if known else INCONCLUSIVE
