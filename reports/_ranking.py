"""Findings in the groups that every output shows: what to do first, the rest, and what stands apart."""

from __future__ import annotations

from itertools import groupby

from advisor.api import Finding, Outcome, Report, Source, dataclass, least_changes_first

from . import _labels, _tried, _words
from ._verdict import Headline

BEST = 3
# Ends that are less than a per cent of the step apart need no reason.
_NARROW = 0.01


@dataclass(frozen=True, slots=True)
class Ranked:
    """A finding with its rule and its place in the order of savings."""

    number: int
    outcome: Outcome
    finding: Finding


@dataclass(frozen=True, slots=True)
class Groups:
    """All findings, each once.

    best         at most three: in the user's reach, and confirmed or with a wait that was measured
    more         the others of that kind
    unconfirmed  of rules that no real trace or measured pair has confirmed yet, and that measured no wait
    out_of_reach costs that no change to the script removes
    """

    best: tuple[Ranked, ...]
    more: tuple[Ranked, ...]
    unconfirmed: tuple[Ranked, ...]
    out_of_reach: tuple[Ranked, ...]


def groups(report: Report) -> Groups:
    """The findings of a report in their groups, each by the wait that was measured or else by saving; bounds come last.

    Of two that save the same time the one that changes less of the training comes first. What has no saving beside
    another finding stands where that one does, after it.

    That a device idled for lack of launches was measured; that a fix gives this back is what is not confirmed, and may
    be no more than a bound.
    """
    found = report.findings()
    others = [one for _, one in found]

    def order(pair: tuple[Outcome, Finding]) -> tuple[int, float, bool, bool]:
        owner = _owner(pair, found)
        return *_order(report, owner[1], others), owner is not pair

    alike = groupby(sorted(found, key=order), key=lambda pair: order(pair)[0])
    ordered = [pair for _, pairs in alike for pair in least_changes_first(pairs, report.step_us)]
    actions = [pair for pair in ordered if _stands(*_owner(pair, found)) and pair[1].recoverable]
    rest = [pair for pair in ordered if pair not in actions]
    unconfirmed = [pair for pair in rest if not _owner(pair, found)[0].confirmed]
    apart = [pair for pair in rest if _owner(pair, found)[0].confirmed]
    ranked = [Ranked(number, *pair) for number, pair in enumerate([*actions, *unconfirmed, *apart], start=1)]
    first, second = len(actions), len(actions) + len(unconfirmed)
    best = min(BEST, first)
    return Groups(tuple(ranked[:best]), tuple(ranked[best:first]), tuple(ranked[first:second]), tuple(ranked[second:]))


def _owner(pair: tuple[Outcome, Finding], found: list[tuple[Outcome, Finding]]) -> tuple[Outcome, Finding]:
    """The finding that saves the time of this one; itself if it has a saving of its own."""
    rule = pair[1].counted_with
    return next((one for one in found if rule and one[0].rule == rule and not one[1].counted_with), pair)


# A fix that gives back half of an idle time says what most of it comes from.
_EXPLAINS = 0.5


def _order(report: Report, finding: Finding, others: list[Finding]) -> tuple[int, float, bool]:
    """Sort key. Idle time for which no fix is known stands after what another finding's fix gives back of it."""
    certainty, worth_us = _certainty(report, finding, report.step_us), _worth_us(report, finding)
    if finding.saving is not None or finding.fix is not None or finding.measured_us is None:
        return certainty, -worth_us, False
    known = [
        one for one in others if one.saving and one.fix and (not one.claims or set(one.claims) & set(finding.claims))
    ]
    known_us = max((_worth_us(report, one) for one in known if _certainty(report, one, report.step_us) <= certainty),
                   default=0.0)  # fmt: skip
    if known_us < _EXPLAINS * worth_us:
        return certainty, -worth_us, False
    return certainty, -min(worth_us, known_us), True


def _stands(outcome: Outcome, finding: Finding) -> bool:
    return outcome.confirmed or finding.measured_us is not None


def _certainty(report: Report, finding: Finding, step_us: float | None) -> int:
    """0: a saving or a wait that is certain; 1: no more than a bound; 2: neither; 3: tried, and it saved nothing."""
    trial = _tried.of(report, finding)
    if trial is not None and trial.gain is not None:
        return 0 if trial.verdict == "faster" else 3
    if finding.measured_us is not None:
        return 0
    return 2 if finding.saving is None else int(finding.saving.is_bound(step_us))


def _worth_us(report: Report, finding: Finding) -> float:
    """µs per step that the finding concerns; where its fix was measured, what that saves."""
    trial = _tried.of(report, finding)
    if trial is None or trial.gain is None or trial.base is None or trial.verdict != "faster":
        return _concerns_us(finding)
    return trial.base.median_us * trial.gain


def _concerns_us(finding: Finding) -> float:
    """µs per step: the wait that was measured where no saving is larger, else the saving; -1 without either."""
    saving_us = finding.saving.high_us if finding.saving else -1.0
    return max(saving_us, finding.measured_us if finding.measured_us is not None else -1.0)


def with_status(report: Report, status: str) -> tuple[Outcome, ...]:
    """The outcomes of one status, by rule."""
    return tuple(sorted((o for o in report.outcomes if o.status == status), key=lambda outcome: outcome.rule))


def nothing_found(report: Report) -> str:
    """What to say where no confirmed rule asks for a change: all clear is not the same as nothing judged."""
    if any(outcome.status == "found" for outcome in report.outcomes):
        return "The confirmed rules found nothing to change"
    if any(outcome.status == "clear" for outcome in report.outcomes):
        return "No rule found anything to change"
    return "No rule had the data it needs" if report.outcomes else "No rule was applied"


def saving(finding: Finding, said: Headline) -> str:
    """The saving per step as words, in the unit of the step, or per hour of the run; says so where there is none."""
    if finding.saving is None:
        shared = _words.one_line(finding.counted_with)
        return f"saves the same time as {shared}" if shared else "saving not computed"
    if finding.run_us:
        low, high = (round(us / finding.run_us * 60) for us in (finding.saving.low_us, finding.saving.high_us))
        bound = finding.saving.is_bound(finding.run_us)
        return f"{f'up to {high}' if bound else high if low == high else f'{low} to {high}'} min per hour"
    low_us = 0.0 if finding.saving.is_bound(said.step_us) else finding.saving.low_us
    return f"{_words.time_range(low_us, finding.saving.high_us, said.step_us)} per {said.whole}"


def saves(finding: Finding, said: Headline) -> str:
    """The saving with its verb, where nothing beside it says that it is no step time; what is out of reach costs."""
    worth = saving(finding, said)
    return worth if finding.saving is None else f"{'saves' if finding.recoverable else 'costs'} {worth}"


def promise(finding: Finding, said: Headline) -> str:
    """What the finding is worth, in time and as a part of the step."""
    share = saving_share(finding, said)
    return f"{saves(finding, said)}, {share}" if share else saves(finding, said)


def saving_share(finding: Finding, said: Headline) -> str:
    """The saving as a part of the step or the run, or ""."""
    whole_us, whole = (finding.run_us, "run") if finding.run_us else (said.step_us, said.whole)
    if finding.saving is None or not whole_us:
        return ""
    if finding.saving.is_bound(whole_us):
        return f"up to {_words.share(finding.saving.high_us / whole_us)} of the {whole}"
    return f"{_words.share_range(finding.saving.low_us / whole_us, finding.saving.high_us / whole_us)} of the {whole}"


def width(finding: Finding, step_us: float | None) -> str:
    """Where the width of the saving's range comes from, largest part first; "" where it has next to none.

    The parts are what this run leaves unknown; the rest is due to the change itself, as its estimate says.
    """
    saving, of = finding.saving, "run" if finding.run_us else "step"
    step_us = finding.run_us or step_us
    least_us = _NARROW * (step_us or 0.0)
    if saving is None or not step_us or saving.high_us - saving.low_us < least_us:
        return ""
    whole_us = saving.high_us - saving.low_us
    # Ends that were cut off at nothing, or at the step, leave less than the parts.
    cut = min(whole_us / max(sum(saving.width_us.values()), 1e-9), 1.0)
    parts = {why: us * cut for why, us in saving.width_us.items()}
    parts["change"] = whole_us - sum(parts.values())
    named = sorted(((us, why) for why, us in parts.items() if us >= least_us), reverse=True)
    said = [f"{_words.share(us / step_us)} {_labels.WIDTHS.get(why, why)}" for us, why in named]
    return f"{_words.share(whole_us / step_us)} of the {of}: {_words.listed(said)}"


def places(finding: Finding) -> tuple[tuple[str, str], ...]:
    """The user's lines as (file:line, in which function), each once.

    Where only the function is known, its line is its first: the place is then the file, and the text says so.
    """
    return tuple(dict.fromkeys(place(source) for source in finding.where))


def place(source: Source) -> tuple[str, str]:
    """A line as (file:line, in which function)."""
    file, name = _words.path(source.file), _words.one_line(source.function)
    if source.precision == "function":
        inside = f"in {name}()" if name and not name.startswith("<") else "in the function"
        return file, f"{inside}, from line {source.line}"
    return f"{file}:{source.line}", f"in {name}()" if name and not name.startswith("<") else ""


def ranks(report: Report, finding: Finding) -> str:
    """On which ranks, where the job has several; else ""."""
    if len(report.ranks) <= 1 or not finding.ranks:
        return ""
    if len(finding.ranks) == len(report.ranks):
        return f"all {len(report.ranks)} ranks"
    return f"rank {finding.ranks[0]}" if len(finding.ranks) == 1 else f"ranks {_words.numbers(finding.ranks)}"


def check_again(finding: Finding, step_us: float | None) -> str:
    """How to verify the fix: what a second run should show."""
    if finding.run_us:
        return "Run again after the change, for as long, and compare where the two runs went."
    parts = _words.listed([f"“{_labels.part(claim).name}”" for claim in finding.claims])
    if finding.saving is None or not step_us:
        shrink = f": {parts} should shrink" if parts else ""
        return f"Run again after the change and compare the two reports{shrink}."
    low, high = max(step_us - finding.saving.high_us, 0.0), max(step_us - finding.saving.low_us, 0.0)
    after = _words.time_range(low, high, step_us).replace("up to", "at most")
    shrink = f", and {parts} should shrink" if parts else ""
    # A fix that changes the training may change how many samples a step has (a larger batch).
    semantics = finding.fix is not None and finding.fix.risk == "semantics"
    what = "the samples of one current step" if semantics else "a step"
    return f"Run again after the change: {what} should take {after}{shrink}."
