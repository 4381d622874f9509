"""The gate's result as Markdown: for a job's step summary or a comment that a later run replaces."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.gate import words
from advisor.gate.model import Flagged, Result, Row, Verdict

# A later run finds its own comment by this line.
MARKER = "<!-- torch-advisor-gate -->"
# GitHub cuts a comment at 64 KB and drops a step summary past 1 MiB; 60 KB fits both.
_MOST_BYTES = 60_000
_MOST_ROWS = 30
_SIGNS: dict[Verdict, str] = {"pass": "✅", "regression": "❌", "inconclusive": "❔", "not comparable": "➖"}


def render(result: Result) -> str:
    """The whole page, never longer than GitHub shows; what was left out is said."""
    parts = [
        f"{MARKER}\n## {_SIGNS[result.verdict]} Performance gate: {result.verdict}\n\n{_safe(result.reason)}\n",
        _table("Changed counters", [row for row in result.counters if row.status != "same"]),
        _table("Budgets", result.budgets),
        _causes(result),
        _findings("New findings", result.new_findings),
        _findings("Resolved findings", result.gone_findings),
        _table("For information", [row for row in result.advisory if row.status == "moved"], fold=True),
        "".join(f"> {_safe(note)}\n>\n" for note in result.notes),
        f"\n<sub>base {_code(result.base)} · head {_code(result.head)}</sub>\n",
    ]
    if result.new_baseline:
        fence = f"```json\n{result.new_baseline.rstrip()}\n```"
        parts.append(
            f"\n<details><summary>The new baseline, if this change is intended</summary>\n\n{fence}\n</details>\n"
        )
    return _fit(parts)


def _fit(parts: Sequence[str]) -> str:
    kept, left_out = "", False
    for part in parts:
        if len((kept + part).encode()) < _MOST_BYTES - 200:
            kept += part
        else:
            left_out = True
    return kept + ("\n*The rest was omitted here; the JSON output of this gate has all of it.*\n" if left_out else "")


def _table(title: str, rows: Sequence[Row], *, fold: bool = False) -> str:
    if not rows:
        return ""
    lines = ["| what | base | head | change | |", "|---|--:|--:|--:|---|"]
    lines += [_row(row) for row in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines.append(f"| *{len(rows) - _MOST_ROWS} more* | | | | |")
    table = "\n".join(lines) + "\n"
    if fold:
        return f"\n<details><summary>{title}</summary>\n\n{table}\n</details>\n"
    return f"\n### {title}\n\n{table}"


def _row(row: Row) -> str:
    base = "" if row.base is None and row.limit and row.head is not None else words.value(row.base, row.unit)
    said = ", ".join(_safe(text) for text in (row.status, row.limit if row.gated else "", row.why, row.where) if text)
    return f"| {_code(row.id)} | {base} | {words.value(row.head, row.unit)} | {words.change(row)} | {said} |"


def _causes(result: Result) -> str:
    if not result.causes:
        return ""
    lines = ["| | what | per step | where |", "|---|---|--:|---|"]
    for cause in result.causes[:_MOST_ROWS]:
        sign = "+" if cause.change >= 0 else "-"
        change = f"{sign}{words.value(abs(cause.change), cause.unit)}"
        lines.append(f"| {cause.kind} | {_code(words.short(cause.name))} | {change} | {_safe(cause.where)} |")
    return "\n### What changed between the two profiles\n\n" + "\n".join(lines) + "\n"


def _findings(title: str, flags: Sequence[Flagged]) -> str:
    if not flags:
        return ""
    lines = [
        f"- **{flag.rule}** ({words.worth(flag)}) {_safe(flag.message)} {_safe(flag.where)}".rstrip() for flag in flags
    ]
    more = [f"- *{len(flags) - _MOST_ROWS} more*"] if len(flags) > _MOST_ROWS else []
    return f"\n### {title}\n\n" + "\n".join(lines[:_MOST_ROWS] + more) + "\n"


def _code(text: str) -> str:
    plain = " ".join(text.replace("`", "'").replace("|", "¦").split())
    return f"`{plain}`"


def _safe(text: str) -> str:
    """Text that cannot become markup: kernel names hold `<`, table cells must hold no bar and no line end."""
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("`", "&#96;"), ("*", "&#42;")):
        text = text.replace(mark, entity)
    return " ".join(text.split())
