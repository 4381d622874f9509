"""The short ranked summary for a terminal: plain text, at most 80 columns wide, about one screen."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from advisor.api import Outcome, Report

from . import (
    _compared_ranks,
    _labels,
    _line_shares,
    _memory,
    _rank_scaling,
    _ranking,
    _run_account,
    _tried,
    _verdict,
    _windows,
    _words,
)

WIDTH = 80
# Parts under half a per cent of the step are named in one line, not drawn.
_DRAWN_SHARE = 0.005
_BAR_COLUMNS = 34
# The space between a number and its unit: lines do not break there.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|(?:[mµn]?s|[kMGT]?B)\b))")
_EIGHTHS = " ▏▎▍▌▋▊▉"
# One screen: more findings than this are counted, not listed.
_MORE_LIMIT = 6
# Of those that nothing confirms yet, the first that may save so much of the step are told in full.
_FULL_LIMIT, _MATTERS = 2, 0.05
# The reasons why most of the rules that could not judge could not.
_REASONS_LIMIT = 4
_NAMES_LIMIT = 3
# Less of a path says nothing.
_PATH_LIMIT = 24
# Later windows that differ from the first: the page has them all.
_LATER_LIMIT = 3


def render(report: Report) -> str:
    """The summary as plain text; no line is wider than 80 columns."""
    blocks = (
        _head,
        _bars,
        _lines,
        _run,
        _later,
        _ranks,
        _memory_peak,
        _actions,
        _apart,
        _elsewhere,
        _other_ranks,
        _quiet,
        _health,
    )
    found = ["\n".join(block(report)) for block in blocks]
    return "\n\n".join(filter(None, found)) + "\n"


def _head(report: Report) -> Iterator[str]:
    said = _verdict.headline(report)
    yield _fit(f"Torch Advisor · {_verdict.subject(report)}")
    yield ""
    yield from _wrapped(f"{_verdict.step_words(report)}  {said.basis}".rstrip())
    spread = f"{said.spread}. {said.tail}" if said.spread and said.tail else said.spread or said.tail
    yield from _wrapped(spread)
    yield from _wrapped(said.verdict)
    for caveat in said.caveats:
        yield from _wrapped(caveat)


def _bars(report: Report) -> Iterator[str]:
    drawn = [item for item in _verdict.parts(report) if item.share >= _DRAWN_SHARE]
    if not drawn:
        return
    yield f"Where the {_verdict.noun(report)} goes"
    widest = max(item.share for item in drawn)
    scale_us = max(item.us for item in drawn)
    for item in drawn:
        # The longest bar fills its column: the numbers beside it are the scale.
        bar = f"{_bar(item.share / widest):{_BAR_COLUMNS}}"
        name = f"{_labels.part(item.id).name[:20]:20}"
        yield f"  {name} {bar} {_words.share(item.share):>6}  {_words.time_at(item.us, scale_us):>9}"
    small = [_small(_labels.part(item.id).name) for item in report.breakdown if 0 < item.share < _DRAWN_SHARE]
    if small:
        yield from _wrapped(f"under {_words.share(_DRAWN_SHARE)} each: {_words.listed(small)}", "  ", "  ")


def _lines(report: Report) -> Iterator[str]:
    found = _line_shares.most(report)
    if not found:
        return
    yield _line_shares.title(report)
    for row in found:
        rest = "".join((f" {row.within}" if row.within else "", f", {row.runs}" if row.runs else ""))
        start = f"  {row.share:>10}  "
        yield _fit(f"{start}{_end(row.place, WIDTH - len(start) - len(rest))}{rest}")


def _end(path: str, limit: int) -> str:
    """The path, or its end: the number of the line is there."""
    return path if len(path) <= limit else f"…{path[len(path) - max(limit, _PATH_LIMIT) + 1 :]}"


def _run(report: Report) -> Iterator[str]:
    yield from _wrapped(_run_account.summary(report), "", "  ")


def _ranks(report: Report) -> Iterator[str]:
    for line in _compared_ranks.said(report.compared) if report.compared else ():
        yield from _wrapped(line, "", "  ")


def _memory_peak(report: Report) -> Iterator[str]:
    for line in _memory.summary(report):
        yield from _wrapped(line, "", "  ")


def _later(report: Report) -> Iterator[str]:
    if len(report.windows) < 2:
        return
    first, *later = _windows.rows(report)
    yield from _wrapped(f"Windows of the run: {len(later)} after the first ({first.at}, {first.step} per step)")
    alike = [row.at for row in later if row.change == _windows.ALIKE]
    if alike:
        yield from _wrapped(f"{_windows.ALIKE}: {_words.listed(alike)}", "  ", "    ")
    changed = [row for row in later if row.change != _windows.ALIKE]
    for row in changed[-_LATER_LIMIT:]:
        most = "; ".join(f"{name}: {before} to {after}" for name, before, after in row.moved[:1])
        text = f"{row.at} ({row.why}): {row.step} per step, {row.change}"
        yield from _wrapped(f"{text}; {most}" if most else text, "  ", "    ")
    if changed:
        yield from _wrapped(
            f"what to change there: advisor analyze FOLDER --window {later.index(changed[-1]) + 2}", "  ", "    "
        )


def _small(name: str) -> str:
    """A name inside a sentence: only its first letter becomes small, and none of GPU's."""
    return name if name[:2].isupper() else name[:1].lower() + name[1:]


def _bar(part: float) -> str:
    eighths = max(1, round(part * _BAR_COLUMNS * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _actions(report: Report) -> Iterator[str]:
    found = _ranking.groups(report)
    said = _verdict.headline(report)
    if not found.best:
        yield _ranking.nothing_found(report)
        return
    yield "What to change first"
    reach = _verdict.reach(report)
    if reach:
        after = f"about {reach.about} ({reach.range})" if reach.about else reach.range
        text = f"{reach.fixes}: a step of {after}, {reach.saved} less ({reach.basis})"
        yield from _wrapped(text, "  ", "  ")
    for ranked in found.best:
        yield from _in_full(report, ranked, said)
    for ranked in found.more[:_MORE_LIMIT]:
        yield _brief(ranked, said)
    hidden = len(found.more) - _MORE_LIMIT
    if hidden > 0:
        yield f"  … and {_words.plural(hidden, 'smaller finding')} in the report"


def _in_full(report: Report, ranked: _ranking.Ranked, said: _verdict.Headline) -> Iterator[str]:
    finding, outcome = ranked.finding, ranked.outcome
    sure = "" if outcome.confirmed else ", not confirmed yet"
    basis = f" ({_labels.BASES[finding.saving.basis].name}{sure})" if finding.saving else ""
    text = f"{ranked.number}. {_words.one_line(outcome.rule)}: {_ranking.promise(finding, said)}{basis}"
    yield from _wrapped(text, "  ", "     ")
    on = _ranking.ranks(report, finding)
    trial = _tried.of(report, finding)
    if trial:
        yield from _wrapped(f"measured on this machine: {_words.one_line(_tried.said(trial))}", "     ", "     ")
    message = _words.one_line(finding.message)
    yield from _wrapped(f"{message} ({on})" if on else message, "     ", "     ")
    places = [f"{place} {within}".strip() for place, within in _ranking.places(finding)]
    if places:
        more = f" and {len(places) - 2} more" if len(places) > 2 else ""
        yield from _wrapped(f"at {', '.join(places[:2])}{more}", "     ", "     ")
    if finding.fix:
        risk = _labels.RISKS[finding.fix.risk].name.lower()
        yield from _wrapped(f"fix: {_words.one_line(finding.fix.title)} ({risk})", "     ", "     ")


def _brief(ranked: _ranking.Ranked, said: _verdict.Headline) -> str:
    places = _ranking.places(ranked.finding)
    at = f"  {places[0][0]}" if places else ""
    text = f"  {ranked.number}. {_words.one_line(ranked.outcome.rule)}: {_ranking.saves(ranked.finding, said)}{at}"
    return _fit(text)


def _matters(report: Report, ranked: _ranking.Ranked) -> bool:
    """Whether a finding that nothing confirms yet may save enough to be read: a line of it alone says no fix."""
    saving, whole_us = ranked.finding.saving, ranked.finding.run_us or report.step_us
    return saving is not None and bool(whole_us) and saving.high_us >= _MATTERS * (whole_us or 0.0)


def _apart(report: Report) -> Iterator[str]:
    found = _ranking.groups(report)
    said = _verdict.headline(report)
    if found.unconfirmed:
        yield "Not confirmed yet by a real trace or a measured pair"
        for at, ranked in enumerate(found.unconfirmed[:_MORE_LIMIT]):
            full = at < _FULL_LIMIT and _matters(report, ranked)
            yield from _in_full(report, ranked, said) if full else [_brief(ranked, said)]
    if found.out_of_reach:
        yield "Costs that no change to the script removes"
        for ranked in found.out_of_reach[:_MORE_LIMIT]:
            yield _fit(f"  {_words.one_line(ranked.finding.message)}")


def _elsewhere(report: Report) -> Iterator[str]:
    """What the step would take on other devices that were asked about."""
    for answer in report.what_if:
        yield from _wrapped(_words.one_line(answer.message), "", "  ")


def _other_ranks(report: Report) -> Iterator[str]:
    """What the step would take on other numbers of ranks that were asked about."""
    found = report.what_if_ranks
    if found is None:
        return
    if not found.rows:
        yield from _wrapped(_words.one_line(found.message), "", "  ")
        return
    yield _rank_scaling.TITLE
    yield from _wrapped(_rank_scaling.lead(found), "  ", "  ")
    yield f"  {'ranks':16} {'step':>24} {'efficiency':>16}"
    for row in _rank_scaling.rows(found):
        yield f"  {row.ranks:16} {row.step:>24} {row.efficiency:>16}"
    for text in _rank_scaling.fitted(found):
        yield from _wrapped(f"measured: {_words.one_line(text)}", "  ", "    ")
    for text in found.assumptions:
        yield from _wrapped(f"assumed: {_words.one_line(text)}", "  ", "    ")


def _quiet(report: Report) -> Iterator[str]:
    clear = [_words.one_line(outcome.rule) for outcome in _ranking.with_status(report, "clear")]
    if clear:
        yield from _wrapped(f"Nothing found by {_rules(clear)}", "", "  ")
    skipped = _by_reason(_ranking.with_status(report, "skipped"))
    if skipped:
        yield f"Could not judge: {_words.plural(sum(map(len, skipped.values())), 'rule')}"
    reasons = sorted(skipped.items(), key=lambda reason: -len(reason[1]))
    for reason, rules in reasons[:_REASONS_LIMIT]:
        yield from _wrapped(f"{reason} ({_rules(rules)})", "  ", "    ", most=3)
    if len(reasons) > _REASONS_LIMIT:
        yield f"  … and {_words.plural(len(reasons) - _REASONS_LIMIT, 'other reason')} in the report"
    for outcome in _ranking.with_status(report, "error"):
        text = f"failed:  {_words.one_line(outcome.rule)}: {_words.one_line(outcome.reason)}"
        yield from _wrapped(text, "", "         ", most=2)


def _rules(names: list[str]) -> str:
    """Names where they are few: a long list of them would hide what is said of them."""
    return ", ".join(names) if len(names) <= _NAMES_LIMIT else f"{len(names)} rules"


def _by_reason(outcomes: tuple[Outcome, ...]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for outcome in outcomes:
        grouped.setdefault(_words.one_line(outcome.reason), []).append(_words.one_line(outcome.rule))
    return grouped


def _health(report: Report) -> Iterator[str]:
    for item in report.health:
        if item.status in ("warning", "error"):
            text = f"{item.status}: {_words.one_line(item.message)}"
            yield from _wrapped(text, "", "         ", most=3)


def _wrapped(text: str, first: str = "", rest: str = "", most: int = 0) -> list[str]:
    """The text in lines of at most 80 columns, at most `most` of them; a number stays beside its unit."""
    wrapper = textwrap.TextWrapper(WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    if most:
        wrapper.max_lines, wrapper.placeholder = most, " …"
    wrapped = wrapper.wrap(_UNIT.sub("\u00a0", text))
    return [line.replace("\u00a0", " ") for line in wrapped]


def _fit(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
