"""Absolute limits of the configuration, suppressions, and "new findings only"."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from advisor.gate import words
from advisor.gate.config import UNITS, Budget, GateConfig, Suppression
from advisor.gate.counters import Count
from advisor.gate.model import Flagged, Row
from advisor.model import Metric


def rows(budgets: Iterable[Budget], metrics: dict[str, Metric], counts: dict[str, Count]) -> list[Row]:
    """Each budget against the head's value; soft limits give rows that are not gated."""
    return [row for budget in budgets for row in _rows(budget, metrics, counts)]


def _rows(budget: Budget, metrics: dict[str, Metric], counts: dict[str, Count]) -> list[Row]:
    value, why = value_of(budget.id, metrics, counts)
    unit = UNITS[budget.id]
    result = []
    for gated, limit in ((True, budget.hard), (False, budget.soft)):
        if limit is None:
            continue
        word = f"{'at most' if budget.side == 'max' else 'at least'} {words.value(limit, unit)}"
        kind = "" if gated else " (soft)"
        if value is None:
            result.append(Row(budget.id, unit, None, None, "not measured", gated, word + kind, why))
        else:
            over = value > limit if budget.side == "max" else value < limit
            result.append(Row(budget.id, unit, None, value, "worse" if over else "same", gated, word + kind))
    return result


def value_of(id_: str, metrics: dict[str, Metric], counts: dict[str, Count]) -> tuple[float | None, str]:
    """The value of a metric or counter; None and the reason where this run did not measure it."""
    metric, count = metrics.get(id_), counts.get(id_)
    if metric and metric.status == "measured":
        return metric.value, ""
    if count and count.value is not None:
        return count.value, ""
    return None, (metric.why if metric else "") or "this run did not measure it"


def relax(given: Sequence[Row], config: GateConfig, today: datetime.date) -> tuple[list[Row], list[str]]:
    """The rows under the configuration's levels and suppressions, and what a reader must know of them."""
    rows, said = [], _expired(config.suppress, today)
    for row in given:
        excuse = next((entry for entry in config.suppress if entry.until >= today and entry.counter == row.id), None)
        level = config.counters[row.id].level if row.id in config.counters else "error"
        rows.append(replace(row, gated=row.gated and not excuse and level == "error"))
        if row.status == "worse" and excuse:
            said.append(f"{row.id} grew ({words.change(row)}) and is accepted until {excuse.until}: {excuse.reason}")
        elif row.status == "worse" and level == "warn":
            said.append(f"{row.id} grew ({words.change(row)}); it is a warning only")
    return rows, said


def unexcused(flags: Sequence[Flagged], entries: Iterable[Suppression], today: datetime.date) -> list[Flagged]:
    """New findings without those that a valid suppression accepts."""
    valid = [entry for entry in entries if entry.rule and entry.until >= today]
    return [flag for flag in flags if not any(_accepts(entry, flag) for entry in valid)]


def _accepts(entry: Suppression, flag: Flagged) -> bool:
    file = PurePath(flag.where.rpartition(":")[0]).name
    return entry.rule == flag.rule and entry.file in ("", file)


def _expired(entries: Iterable[Suppression], today: datetime.date) -> list[str]:
    return [
        f"the suppression of {entry.counter or entry.rule} expired on {entry.until}: {entry.reason}"
        for entry in entries
        if entry.until < today
    ]
