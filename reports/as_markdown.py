"""Markdown for a pull request comment or a job summary: at most 60 kB, and no text of a trace is obeyed.

A comment holds 64 kB. What does not fit is left out from the end, in whole lines, and the last line says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.api import Report

from . import (
    _compared_ranks,
    _labels,
    _line_shares,
    _memory,
    _rank_scaling,
    _ranking,
    _run_account,
    _verdict,
    _windows,
    _words,
)

LIMIT_BYTES = 60_000
# Longer texts are cut: a message is a sentence, and names of 2,000 characters exist.
_TEXT_LIMIT = 600
_ROWS = 10
# What Markdown gives a meaning inside a line; no text stands at the start of one.
_SPECIAL = re.compile(r"([\\*_{}\[\]~>|$])")
_FENCE = re.compile(r"   (`{3,})")
_ISSUE = re.compile(r"#(?=\d)")


def render(report: Report) -> str:
    """The report as Markdown."""
    sections = (
        _head,
        _breakdown,
        _lines,
        _ranks,
        _run,
        _later,
        _memory_peak,
        _findings,
        _apart,
        _elsewhere,
        _other_ranks,
        _checks,
        _numbers,
    )
    return _bounded([line for section in sections for line in section(report)])


def text(value: object, limit: int = _TEXT_LIMIT) -> str:
    """Prose that Markdown shows as it stands: `code` stays code; no other markup, no link, no mention, one line."""
    pieces = _cut(_words.one_line(value), limit).split("`")
    # An odd back-tick at the end pairs with nothing and is shown.
    loose = len(pieces) % 2 == 0
    shown = [code(piece) if index % 2 else _prose(piece) for index, piece in enumerate(pieces)]
    return "".join([*shown[:-1], "\\`", _prose(pieces[-1])]) if loose else "".join(shown)


def _prose(plain: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", plain.replace("&", "&amp;").replace("<", "&lt;"))
    # A zero-width space keeps a forge from making links, mentions and references of what is none.
    return _ISSUE.sub("#\u200b", escaped.replace("@", "@\u200b").replace("://", ":\u200b//"))


def code(value: object, limit: int = _TEXT_LIMIT) -> str:
    """A code span that holds any text, back-ticks and pipes included."""
    plain = _cut(_words.one_line(value), limit)
    if not plain:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", plain)), default=0) + 1)
    pad = " " if "`" in plain else ""
    # In a table a pipe ends the cell even inside code; everywhere else the backslash would show.
    return f"{fence}{pad}{plain.replace('|', '¦')}{pad}{fence}"


def _cut(plain: str, limit: int) -> str:
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"


def _head(report: Report) -> Iterator[str]:
    said = _verdict.headline(report)
    yield f"## Torch Advisor: {text(said.verdict)}"
    yield ""
    spread = f". {text(said.spread)}." if said.spread else ""
    yield f"**{_verdict.step_words(report)}**{f' ({text(said.basis)})' if said.basis else ''}{spread}"
    reach = _verdict.reach(report)
    if reach:
        yield ""
        after = f"about **{reach.about}** ({reach.range})" if reach.about else f"**{reach.range}**"
        yield f"{reach.fixes.capitalize()}: a step of {after}, {reach.saved} less, {reach.basis}."
    for sentence in (said.tail, *said.caveats):
        if sentence:
            yield ""
            yield text(sentence)
    yield ""


def _ranks(report: Report) -> Iterator[str]:
    lines = tuple(_compared_ranks.said(report.compared)) if report.compared else ()
    for line in lines:
        yield f"- {text(line)}"
    if lines:
        yield ""


def _breakdown(report: Report) -> Iterator[str]:
    parts = _verdict.parts(report)
    if not parts:
        return
    yield f"| Part of the {_verdict.noun(report)} | Share | Time |"
    yield "|---|---:|---:|"
    scale_us = max(item.us for item in parts)
    for item in parts:
        if item.share > 0:
            time = _words.time_at(item.us, scale_us)
            yield f"| {text(_labels.part(item.id).name)} | {_words.share(item.share)} | {time} |"
    yield ""


def _lines(report: Report) -> Iterator[str]:
    found = _line_shares.most(report)
    if not found:
        return
    yield f"| {_line_shares.title(report)} | Share | How |"
    yield "|---|---:|---|"
    for row in found:
        yield f"| {code(row.place)} {text(row.within)} | {row.share} | {text(_line_shares.said(row))} |"
    yield ""


def _run(report: Report) -> Iterator[str]:
    if report.account is None:
        return
    yield "| Part of the run | Share | Time | Most of it at |"
    yield "|---|---:|---:|---|"
    for row in _run_account.rows(report.account):
        at = code(row.lines[0][0]) if row.lines else ""
        yield f"| {text(row.name)} | {row.share} | {row.time} | {at} |"
    yield ""


def _later(report: Report) -> Iterator[str]:
    rows = _windows.rows(report)
    if not rows:
        return
    yield "| Window | Step | Moved most |"
    yield "|---|---:|---|"
    for row in rows:
        moved = [f"{code(name)} {before} to {after}" for name, before, after in row.moved[:2]]
        change = f": {text(row.change)}" if row.change else ""
        yield f"| {text(row.at)}, {text(row.why)}{change} | {row.step} | {', '.join(moved)} |"
    yield ""


def _memory_peak(report: Report) -> Iterator[str]:
    if report.memory is None:
        return
    yield "| Memory at the peak | Size | Share |"
    yield "|---|---:|---:|"
    for row in _memory.rows(report.memory, report.memory.kinds, _memory.KINDS):
        yield f"| {text(row.name)} | {row.size} | {row.share} |"
    yield ""


def _findings(report: Report) -> Iterator[str]:
    found = _ranking.groups(report)
    if not (found.best or found.more):
        yield f"### {_ranking.nothing_found(report)}"
        yield ""
        return
    yield "### What to change"
    yield ""
    for ranked in (*found.best, *found.more):
        yield from _finding(report, ranked)
    yield ""


def _finding(report: Report, ranked: _ranking.Ranked) -> Iterator[str]:
    finding = ranked.finding
    said = _verdict.headline(report)
    share = _ranking.saving_share(finding, said)
    sure = "" if ranked.outcome.confirmed else ", not confirmed yet"
    basis = f", {_labels.BASES[finding.saving.basis].name}{sure}" if finding.saving else ""
    worth = f"{_ranking.saves(finding, said)}{f' ({share}{basis})' if share else ''}"
    yield f"{ranked.number}. **{code(ranked.outcome.rule)}: {text(worth)}.** {text(finding.message)}"
    places = [f"{code(place)} {text(inside)}".strip() for place, inside in _ranking.places(finding)[:3]]
    if places:
        yield f"   At {', '.join(places)}."
    if finding.fix:
        yield f"   Fix: {text(finding.fix.title)} ({_labels.RISKS[finding.fix.risk].name.lower()})."
    if finding.fix and finding.fix.after:
        yield ""
        yield from fenced(finding.fix.after)
        yield ""


def fenced(source: str) -> Iterator[str]:
    """Lines of code in a list item; the fence is longer than any in them."""
    plain = _words.clean(source)[:2000]
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", plain)), default=0) + 1)
    yield f"   {fence}python"
    yield from (f"   {line}" for line in plain.splitlines())
    yield f"   {fence}"


def _apart(report: Report) -> Iterator[str]:
    found = _ranking.groups(report)
    for title, group in (
        ("Not confirmed yet by a real trace or a measured pair", found.unconfirmed),
        ("Costs that no change to the script removes", found.out_of_reach),
    ):
        if group:
            yield f"### {title}"
            yield ""
            for ranked in group:
                worth = _ranking.saves(ranked.finding, _verdict.headline(report))
                yield f"- {code(ranked.outcome.rule)}: {text(worth)}. {text(ranked.finding.message)}"
            yield ""


def _elsewhere(report: Report) -> Iterator[str]:
    for answer in report.what_if:
        yield text(answer.message)
        yield ""


def _other_ranks(report: Report) -> Iterator[str]:
    found = report.what_if_ranks
    if found is None:
        return
    yield f"### {_rank_scaling.TITLE}"
    yield ""
    if not found.rows:
        yield text(found.message)
        yield ""
        return
    yield f"{text(_rank_scaling.lead(found))}."
    yield ""
    yield "| Ranks | Step | Efficiency |"
    yield "|---|---:|---:|"
    for row in _rank_scaling.rows(found):
        yield f"| {row.ranks} | {row.step} | {row.efficiency} |"
    yield ""
    yield from (f"- measured: {text(one)}" for one in _rank_scaling.fitted(found))
    yield from (f"- assumed: {text(one)}" for one in found.assumptions)
    yield ""


def _checks(report: Report) -> Iterator[str]:
    shown = [("skipped", o) for o in _ranking.with_status(report, "skipped")]
    shown += [("failed", o) for o in _ranking.with_status(report, "error")]
    health = [item for item in report.health if item.status in ("warning", "error")]
    clear = _ranking.with_status(report, "clear")
    if not (shown or health or clear):
        return
    yield "### Checks"
    yield ""
    for status, outcome in shown:
        yield f"- {status}: {code(outcome.rule)}: {text(outcome.reason)}"
    if clear:
        yield f"- clear: {', '.join(code(outcome.rule) for outcome in clear)}"
    for item in health:
        yield f"- {item.status}: {text(item.message)}"
    yield ""


def _numbers(report: Report) -> Iterator[str]:
    measured = [metric for metric in report.metrics.values() if metric.value is not None]
    if measured:
        yield "<details><summary>Numbers</summary>"
        yield ""
        yield "| Quantity | Value |"
        yield "|---|---:|"
        for metric in measured:
            yield f"| {text(_labels.metric(metric.id).name)} | {_words.metric(metric.value or 0.0, metric.unit)} |"
        yield ""
        for row in (*report.kernels[:_ROWS], *report.ops[:_ROWS]):
            yield f"- {code(_words.short(row.name, 100))}: {_words.time(row.us)}, {_words.plural(row.calls, 'call')}"
        yield ""
        yield "</details>"
        yield ""


def _bounded(lines: list[str]) -> str:
    """The lines within the limit; what was left out is counted, and nothing stays open."""
    kept, used, fence, folded = [], 0, "", False
    for index, line in enumerate(lines):
        used += len(line.encode("utf-8")) + 1
        # Room for closing what is open and for the last line.
        if used > LIMIT_BYTES - 2_200:
            kept += [f"   {fence}"] * bool(fence) + ["</details>"] * folded
            kept += ["", f"… {len(lines) - index} more lines do not fit here; see the HTML report.", ""]
            break
        kept.append(line)
        found = _FENCE.match(line)
        if found and (not fence or line.strip() == fence):
            fence = "" if fence else found[1]
        folded = line.startswith("<details>") or (folded and line != "</details>")
    return "\n".join(kept)
