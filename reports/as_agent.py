"""The report for a coding agent: compact Markdown of at most 4,096 bytes, which can be acted on without another file.

What does not fit is left out from the end of the findings, in whole ones, and a line says how many.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from advisor.api import Finding, Report

from . import _labels, _line_shares, _ranking, _tried, _verdict, _words
from .as_markdown import code, fenced, text

LIMIT_BYTES = 4096
# Lengths in characters: a message is a sentence, and paths of 2,000 characters exist.
_MESSAGE, _PLACE, _COMMAND, _CODE, _REASON = 300, 160, 160, 400, 160
_PLACES = 2
_REASONS = 4
_PARTS = 6
_LINES = 3
_NAMES = 3
# No more than these could fit, whatever they say.
_MOST = 60
# Below half a per cent of the step a part is not worth a line.
_LEAST_SHARE = 0.005


def render(report: Report) -> str:
    """The report as Markdown of at most `LIMIT_BYTES` bytes of UTF-8."""
    head = [*_head(report), *_parts(report)]
    found = _ranking.groups(report)
    ranked = [*found.best, *found.more, *found.unconfirmed, *found.out_of_reach]
    tail = [*(_again(report) if ranked else ()), *_unjudged(report)]
    items = [[*_finding(report, one)] for one in ranked[:_MOST]]
    for kept in range(len(items), -1, -1):
        lines = [*head, *_listed(report, items[:kept], len(ranked)), *tail]
        if _size(lines) <= LIMIT_BYTES:
            return "\n".join(lines)
    while _size(lines) > LIMIT_BYTES:
        lines.pop()
    return "\n".join([*lines[:-1], ""])


def _size(lines: list[str]) -> int:
    return len("\n".join(lines).encode("utf-8"))


def _head(report: Report) -> Iterator[str]:
    said = _verdict.headline(report)
    yield f"# Torch Advisor: {code(_verdict.subject(report), _COMMAND)}"
    yield ""
    yield f"{_verdict.step_words(report)}{f' ({text(said.basis, _REASON)})' if said.basis else ''}. " + text(
        said.verdict, _MESSAGE
    )
    reach = _verdict.reach(report)
    if reach:
        after = f"about {reach.about} ({reach.range})" if reach.about else reach.range
        yield f"{reach.fixes.capitalize()}: a step of {after}, {reach.saved} less, {reach.basis}."
    for sentence in (said.tail, *said.caveats):
        if sentence:
            yield text(sentence, _REASON)
    yield ""


def _parts(report: Report) -> Iterator[str]:
    parts = [item for item in _verdict.parts(report) if item.share >= _LEAST_SHARE]
    if not parts:
        yield f"Where the {_verdict.noun(report)} goes: not measured"
        yield ""
        return
    scale_us = max(item.us for item in parts)
    largest = sorted(parts, key=lambda item: -item.share)[:_PARTS]
    said = [
        f"{text(_labels.part(item.id).name, 40)} {_words.share(item.share)} ({_words.time_at(item.us, scale_us)})"
        for item in largest
    ]
    yield f"Where the {_verdict.noun(report)} goes: {'; '.join(said)}"
    costly = [f"{code(row.place, _PLACE)} {row.share}" for row in _line_shares.most(report)[:_LINES]]
    if costly:
        yield f"{_line_shares.title(report)} (with their backward pass): {'; '.join(costly)}"
    yield ""


def _listed(report: Report, items: list[list[str]], count: int) -> Iterator[str]:
    """The findings that fit, and how many do not."""
    yield "## What to change" if count else f"## {_ranking.nothing_found(report)}"
    yield ""
    for lines in items:
        yield from lines
    if len(items) < count:
        yield f"{_words.plural(count - len(items), 'more finding')} in report.json."
    if count:
        yield ""


def _finding(report: Report, ranked: _ranking.Ranked) -> Iterator[str]:
    finding, outcome = ranked.finding, ranked.outcome
    basis = _labels.BASES[finding.saving.basis].name if finding.saving else ""
    sure = "" if outcome.confirmed else "not confirmed yet"
    known = ", ".join(filter(None, (basis, sure)))
    promise = _ranking.promise(finding, _verdict.headline(report))
    yield f"{ranked.number}. {code(outcome.rule, 60)}: {text(promise, _MESSAGE)}{f' ({known})' if known else ''}"
    trial = _tried.of(report, finding)
    if trial:
        yield f"   Measured on this machine: {text(_tried.said(trial), _REASON)}"
    yield f"   {text(finding.message, _MESSAGE)}"
    places = [f"{code(place, _PLACE)} {text(inside, 60)}".strip() for place, inside in _ranking.places(finding)]
    if places:
        more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        yield f"   At {', '.join(places[:_PLACES])}{more}"
    yield from _fix(finding)
    if finding.fix and finding.recoverable:
        yield f"   Verify: {_verify(report, ranked)}"


def _fix(finding: Finding) -> Iterator[str]:
    fix = finding.fix
    if fix is None:
        return
    yield f"   Fix: {text(fix.title, _MESSAGE)} ({_labels.RISKS[fix.risk].name.lower()})"
    for name, lines in (("Before", fix.before), ("After", fix.after)):
        if lines and len(lines) <= _CODE:
            yield f"   {name}:"
            yield from fenced(lines)
        elif lines:
            yield f"   {name}: {len(lines.splitlines())} lines, in report.json"


def _verify(report: Report, ranked: _ranking.Ranked) -> str:
    """What a second run should show, and the command that measures the fix where it needs no edit."""
    fix = ranked.finding.fix
    again = text(_ranking.check_again(ranked.finding, _verdict.headline(report).step_us), _MESSAGE)
    if not (report.run.command and fix and (fix.treatment or fix.edit)):
        return again
    command = f"advisor try --only {_words.one_line(ranked.outcome.rule)} {_command(report)}"
    return f"{code(command, _COMMAND)} measures it without an edit. {again}"


def _command(report: Report) -> str:
    return shlex.join(_words.path(word) for word in report.run.command)


def _again(report: Report) -> Iterator[str]:
    """How to run again and compare, once for all findings."""
    command = code(f"advisor run -o after {_command(report)}", _COMMAND) if report.run.command else "`advisor run`"
    yield f"Run again: {command}, then `advisor compare A after`, where A is the folder of this report."
    yield ""


def _unjudged(report: Report) -> Iterator[str]:
    """What was clear, quantities and rules without the data they need, by reason, and what makes figures doubtful."""
    reasons: dict[str, list[str]] = {}
    for metric in report.metrics.values():
        if metric.status == "not_measured":
            reasons.setdefault(_words.one_line(metric.why), []).append(_labels.metric(metric.id).name)
    for outcome in (*_ranking.with_status(report, "skipped"), *_ranking.with_status(report, "error")):
        reasons.setdefault(_words.one_line(outcome.reason), []).append(_words.one_line(outcome.rule))
    health = [item for item in report.health if item.status in ("warning", "error")]
    clear = [_words.one_line(outcome.rule) for outcome in _ranking.with_status(report, "clear")]
    if clear:
        names = ", ".join(code(rule, 60) for rule in clear)
        yield f"Nothing found by {names if len(clear) <= _NAMES else _words.plural(len(clear), 'rule')}"
        yield ""
    if not (reasons or health):
        return
    yield "## Not measured, not judged"
    yield ""
    for item in health[:_REASONS]:
        yield f"- {item.status}: {text(item.message, _REASON)}"
    ordered = sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    for reason, what in ordered[:_REASONS]:
        names = ", ".join(text(name, 40) for name in what[:_NAMES])
        more = f" and {len(what) - _NAMES} more" if len(what) > _NAMES else ""
        yield f"- not measured: {names}{more}: {text(reason, _REASON) or 'no reason is known'}"
    if len(ordered) > _REASONS:
        yield f"- {_words.plural(len(ordered) - _REASONS, 'other reason')} in report.json"
    yield ""
