"""A comparison as Markdown, for a pull request: no text of a trace is obeyed, at most 60 kB."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import Comparison, Flagged, change_in_words

from . import _compared_words as words
from . import _labels, _words
from .as_markdown import LIMIT_BYTES, code, text

_ROWS = 12


def render(comparison: Comparison) -> str:
    """The comparison as Markdown."""
    sections = (_head, _parts, _findings, _movers, _numbers)
    lines = [line for section in sections for line in section(comparison)]
    kept, used = [], 0
    for index, line in enumerate(lines):
        used += len(line.encode("utf-8")) + 1
        if used > LIMIT_BYTES - 200:
            kept.append(f"\n… {len(lines) - index} more lines do not fit here; use `--format html` to see all.")
            break
        kept.append(line)
    return "\n".join(kept) + "\n"


def _head(c: Comparison) -> Iterator[str]:
    yield f"## {text(words.title(c))}"
    yield ""
    yield f"{text(_words.sentence(change_in_words(c.change)))}."
    yield ""
    yield "| | A | B |"
    yield "|---|---|---|"
    yield f"| Report | {code(_words.path(c.a.name))} | {code(_words.path(c.b.name))} |"
    yield f"| Device | {text(words.device(c.a))} | {text(words.device(c.b))} |"
    yield f"| Step times | {text(words.times(c.a))} | {text(words.times(c.b))} |"
    yield ""
    for note in c.notes:
        yield f"- {text(_words.sentence(note))}"
    if c.notes:
        yield ""


def _parts(c: Comparison) -> Iterator[str]:
    yield "| Part of the step | A | B | Difference |"
    yield "|---|---:|---:|---:|"
    for row in c.parts:
        name, before, after, change = words.part(row)
        yield f"| {text(name)} | {before} | {after} | {change} |"
    yield ""


def _findings(c: Comparison) -> Iterator[str]:
    for title, flags in (("Findings gone", c.gone_findings), ("New findings", c.new_findings)):
        if flags:
            yield f"### {title}"
            yield ""
            yield from (_flag(flag) for flag in flags)
            yield ""
    if c.changed_findings:
        yield "### Findings changed"
        yield ""
        for pair in c.changed_findings:
            before, after = (f"{one.severity}, {words.worth(one)}" for one in (pair.base, pair.head))
            yield f"- {code(pair.head.rule)}: {before} in A; {after} in B. {text(pair.head.message)}"
        yield ""


def _flag(flag: Flagged) -> str:
    place = f" at {code(_words.path(flag.where))}" if flag.where else ""
    return f"- {code(flag.rule)} ({flag.severity}, {words.worth(flag)}){place}: {text(flag.message)}"


def _movers(c: Comparison) -> Iterator[str]:
    yield "### Largest changes, per profiled step"
    yield ""
    for group in c.movers:
        name = words.KINDS[group.kind]
        if group.missing or not group.rows:
            yield f"{name}: {group.missing or 'no difference above 0.2 % of the step'}."
            yield ""
            continue
        yield f"| {name} | A | B | Difference |"
        yield "|---|---:|---:|---:|"
        for row in group.rows:
            before, after, change = words.mover(row)
            yield f"| {code(_words.short(row.name, 100))} | {before} | {after} | {change} |"
        yield ""


def _numbers(c: Comparison) -> Iterator[str]:
    rows = (*c.counters[:_ROWS], *c.advisory[:_ROWS])
    if not rows:
        return
    yield "<details><summary>Numbers that differ</summary>"
    yield ""
    yield "| Quantity | A | B |"
    yield "|---|---:|---:|"
    for row in rows:
        name = text(_labels.metric(row.id).name)
        yield f"| {name} | {words.metric(row, row.base)} | {words.metric(row, row.head)} |"
    yield ""
    yield "</details>"
