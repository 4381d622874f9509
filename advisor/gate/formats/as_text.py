"""The gate's result for a terminal or a log: the verdict first, then what moved."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.gate import words
from advisor.gate.model import Cause, Flagged, Result, Row

# A log is read from its end and skimmed: more rows than this belong into the JSON.
_MOST = 20


def render(result: Result) -> str:
    """The whole text, ending in a newline."""
    lines = [f"gate: {result.verdict.upper()}: {result.reason}", f"  base {result.base}", f"  head {result.head}"]
    if result.step_time:
        lines += ["", f"  {words.step_time(result.step_time)}"]
    lines += _table("changed counters", [row for row in result.counters if row.status != "same"])
    lines += _table("budgets", list(result.budgets))
    lines += _causes(result.causes)
    lines += _findings("new findings", result.new_findings)
    lines += _findings("resolved findings", result.gone_findings)
    lines += _table("for information", [row for row in result.advisory if row.status == "moved"])
    lines += ["", *(f"  note: {note}" for note in result.notes)] if result.notes else []
    if result.new_baseline:
        lines += ["", "the new baseline, if this change is intended:", result.new_baseline.rstrip()]
    return "\n".join(lines) + "\n"


def _table(title: str, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    width = max(len(row.id) for row in rows[:_MOST])
    lines = ["", f"  {title}"]
    lines += [f"    {row.id:<{width}}  {describe(row)}" for row in rows[:_MOST]]
    return lines + ([f"    and {len(rows) - _MOST} more"] if len(rows) > _MOST else [])


def describe(row: Row) -> str:
    """A row after its name: `339 -> 340  +1  worse (exact)  train.py:88`."""
    if row.base is None and row.limit and row.head is not None:
        numbers = words.value(row.head, row.unit)
    else:
        numbers = (
            f"{words.value(row.base, row.unit)} -> {words.value(row.head, row.unit)}  {words.change(row)}".rstrip()
        )
    budget = row.base is None and bool(row.limit)
    judged: str = "over" if budget and row.status == "worse" else row.status
    judged += f" ({row.limit})" if row.limit and (row.gated or budget) else ""
    why = f": {row.why}" if row.why else ""
    return f"{numbers}  {judged}{why}{'  ' + row.where if row.where else ''}"


def _causes(causes: Sequence[Cause]) -> list[str]:
    if not causes:
        return []
    lines = ["", "  what changed between the two profiles (per step)"]
    lines += [f"    {cause.kind:<8} {words.short(cause.name)}  {moved(cause)}" for cause in causes]
    return lines


def moved(cause: Cause) -> str:
    """The change of a cause, with both sides where there are two: `+458 ms (new)`."""
    sign = "+" if cause.change >= 0 else "-"
    change = f"{sign}{words.value(abs(cause.change), cause.unit)}"
    where = f"  {cause.where}" if cause.where else ""
    if cause.base is None or cause.head is None:
        return change + where
    return f"{change}  ({words.value(cause.base, cause.unit)} -> {words.value(cause.head, cause.unit)}){where}"


def _findings(title: str, flags: Sequence[Flagged]) -> list[str]:
    if not flags:
        return []
    rows = [
        f"    {flag.rule} ({words.worth(flag)}) {flag.message}{'  ' + flag.where if flag.where else ''}"
        for flag in flags
    ]
    more = [f"    and {len(flags) - _MOST} more"] if len(flags) > _MOST else []
    return ["", f"  {title}", *rows[:_MOST], *more]
