"""The gate's result as GitHub workflow commands: annotations beside the changed lines."""

from __future__ import annotations

import re

from advisor.gate import words
from advisor.gate.model import Result
from advisor.quantities import duration

# GitHub shows ten errors and ten warnings of a step; eight and one "n more" stay below it whatever else the step says.
_MOST = 8


def render(result: Result) -> str:
    """One `::error` or `::warning` line each: the verdict first, then the largest changes, then how many more."""
    level = {"pass": "notice", "regression": "error"}.get(result.verdict, "warning")
    lines = [_command(level, f"Performance gate: {result.verdict}", result.reason)]
    said = _annotations(result)
    lines += [_command(*annotation) for annotation in said[:_MOST]]
    if len(said) > _MOST:
        lines.append(_command("warning", "Performance gate", f"{len(said) - _MOST} more; see the step summary"))
    return "".join(f"{line}\n" for line in lines)


def _annotations(result: Result) -> list[tuple[str, str, str, str]]:
    """(level, title, message, where), largest first."""
    rows = [row for row in (*result.budgets, *result.counters) if row.status == "worse"]
    rows.sort(key=lambda row: (not row.gated, -_growth(row.base, row.head), row.id))
    said = [
        (
            "error" if row.gated and result.verdict == "regression" else "warning",
            f"{row.id} grew" if row.base is not None else f"{row.id} over its limit",
            f"{words.value(row.base, row.unit)} -> {words.value(row.head, row.unit)} {words.change(row)} {row.limit}",
            row.where,
        )
        for row in rows
    ]
    flags = sorted(result.new_findings, key=lambda flag: (not flag.low_us, -(flag.high_us or 0.0)))
    said += [("warning", f"new finding: {flag.rule} ({words.worth(flag)})", flag.message, flag.where) for flag in flags]
    if result.step_time and result.step_time.decision == "regression":
        lines = [cause for cause in result.causes if cause.where and cause.change > 0]
        said += [
            ("warning", "this line got slower", f"{cause.name}: {duration(cause.change)} more per step", cause.where)
            for cause in lines
            if cause.unit == "us"
        ]
    return said


def _growth(base: float | None, head: float | None) -> float:
    return (head or 0.0) / base if base else float("inf")


def _command(level: str, title: str, message: str, where: str = "") -> str:
    properties = [f"title={_escape(title, whole=False)}"]
    found = re.fullmatch(r"(.+):(\d+)", where)
    # An absolute path is no file of the repository, and the annotation would be lost.
    if found and not found[1].startswith("/"):
        properties += [f"file={_escape(found[1], whole=False)}", f"line={found[2]}"]
    return f"::{level} {','.join(properties)}::{_escape(message, whole=True)}"


def _escape(text: str, *, whole: bool) -> str:
    text = text.strip().replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text if whole else text.replace(":", "%3A").replace(",", "%2C")
