"""A comparison as text for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from advisor.gate import words
from advisor.gate.comparison.model import Comparison, FindingChange, Mover, Movers, in_words
from advisor.gate.model import Cause, Flagged, Row
from advisor.quantities import duration

_MOST_ROWS = 12
# Kernels and ops have a section of their own.
_MORE = {"line": "lines, per profiled step", "module": "modules, their own time per profiled step"}


def as_json(found: Comparison) -> str:
    """The comparison as an indented JSON document."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def as_text(found: Comparison) -> str:
    """The comparison for a terminal."""
    lines = [f"A  {found.base}", f"B  {found.head}", "", f"step time  {_numbers(found.step)}"]
    lines += [f"           {in_words(found.change)}"]
    lines += _section("where the step's time went", [f"{row.id:<24} {_numbers(row)}" for row in found.parts])
    lines += _section("changed counters", [f"{row.id:<32} {_numbers(row)}" for row in found.counters])
    lines += _section("ops and kernels, per profiled step", [_cause(cause) for cause in found.ops])
    lines += [line for group in found.movers if group.kind in _MORE for line in _moved(group)]
    lines += _section("new findings", [_flag(flag) for flag in found.new_findings])
    lines += _section("resolved findings", [_flag(flag) for flag in found.gone_findings])
    lines += _section("changed findings", [_changed(pair) for pair in found.changed_findings])
    lines += _section("other figures", [f"{row.id:<32} {_numbers(row)}" for row in found.advisory])
    lines += ["", *(f"note: {note}" for note in found.notes)] if found.notes else []
    return "\n".join(lines) + "\n"


def _numbers(row: Row) -> str:
    return f"{words.value(row.base, row.unit)} -> {words.value(row.head, row.unit)}  {words.change(row)}".rstrip()


def _cause(cause: Cause) -> str:
    mark = "new " if cause.base is None else "gone " if cause.head is None else ""
    sign = "+" if cause.change >= 0 else "-"
    return f"{sign}{duration(abs(cause.change)):<10} {mark}{cause.kind} {words.short(cause.name)}"


def _flag(flag: Flagged) -> str:
    return f"{flag.rule} ({words.worth(flag)}) {flag.message}{'  ' + flag.where if flag.where else ''}"


def _section(title: str, rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    more = [f"  and {len(rows) - _MOST_ROWS} more"] if len(rows) > _MOST_ROWS else []
    return ["", title, *(f"  {row}" for row in rows[:_MOST_ROWS]), *more]


def _moved(group: Movers) -> list[str]:
    return _section(_MORE[group.kind], [group.missing] if group.missing else [_mover(row) for row in group.rows])


def _mover(row: Mover) -> str:
    sides = [words.value(us, "us") if us is not None else "none" for us in (row.base_us, row.head_us)]
    change = f"{'+' if row.change_us >= 0 else '-'}{duration(abs(row.change_us))}"
    return f"{change:<11} {words.short(row.name)}  {sides[0]} -> {sides[1]}"


def _changed(pair: FindingChange) -> str:
    return f"{pair.head.rule} ({words.worth(pair.base)} -> {words.worth(pair.head)}) {pair.head.message}"
