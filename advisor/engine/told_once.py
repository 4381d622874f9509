"""Time that several fixes would save counts once: idle time with one of them, other time as its findings say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.analyses.costs.replay import Replay, ReplayedSaving
from advisor.model import Finding, Outcome, Saving, changes_less, finding_order
from advisor.model.savings import NOTHING_SHARE

# Two replays of one graph settle to a part in ten thousand of the step each.
_ALIKE_SHARE = 0.001
_Place = tuple[int, int]


def idle_once(
    outcomes: Sequence[Outcome], replay: Replay | None, step_us: float, parts_us: Mapping[str, float]
) -> tuple[Outcome, ...]:
    """The outcomes with savings of idle time that add up: each has what it saves beside those before it.

    Either of two changes may save the same idle time: a wait that goes lets the host do its work ahead, or that
    work goes, perhaps with kernels. It counts with the change that is certain, or saves most; fusions come last, that
    of most launches after all others, then what may be justified, and rules that nothing has confirmed behind those.
    What has nothing left keeps its diagnosis without a
    number; idle time that another finding has told makes no second one severe. Where nothing is replayed, as of one
    step, all of them together save no more of a part than it holds.

    parts_us: the parts of the breakdown, on the scale of the savings.
    """
    found = _of_idle(outcomes, step_us, Saving if replay is None else ReplayedSaving)
    told = dict(_divided(found, replay, step_us) if replay is not None else _within(found, parts_us, step_us))
    return tuple(
        replace(outcome, findings=tuple(told.get((at, n), finding) for n, finding in enumerate(outcome.findings)))
        if any(place[0] == at for place in told)
        else outcome
        for at, outcome in enumerate(outcomes)
    )


def named_once(outcomes: Sequence[Outcome], step_us: float) -> tuple[Outcome, ...]:
    """The outcomes in which a saving names the fix that saves the same time and changes less of the training."""
    found = [(outcome, finding) for outcome in outcomes for finding in outcome.findings]

    def named(outcome: Outcome, finding: Finding) -> Finding:
        less = next((one.rule for one, other in found if changes_less((one, other), (outcome, finding), step_us)), None)
        if less is None or finding.saving is None:
            return finding
        how = f"{finding.saving.how}; `{less}` saves the same time and changes less: it counts once"
        return replace(finding, saving=replace(finding.saving, how=how))

    return tuple(replace(one, findings=tuple(named(one, finding) for finding in one.findings)) for one in outcomes)


def _of_idle(outcomes: Sequence[Outcome], step_us: float, kind: type[Saving]) -> list[tuple[_Place, str, Finding]]:
    """Findings with such a saving of idle time, in the order in which they count."""
    found = [
        (
            (
                not outcome.confirmed,
                finding.at_most == "low",
                _fused(finding),
                finding_order(outcome.rule, finding, step_us),
            ),
            (at, n),
        )
        for at, outcome in enumerate(outcomes)
        for n, finding in enumerate(outcome.findings)
        if isinstance(finding.saving, kind) and finding.recoverable and _idle(finding)
    ]
    return [((at, n), outcomes[at].rule, outcomes[at].findings[n]) for _, (at, n) in sorted(found)]


def _divided(
    found: Sequence[tuple[_Place, str, Finding]], replay: Replay, step_us: float
) -> Iterator[tuple[_Place, Finding]]:
    """Those that save less beside the ones before, with what is left to them."""
    before: list[tuple[str, Finding, ReplayedSaving]] = []
    for place, rule, finding in found:
        saving = finding.saving
        assert isinstance(saving, ReplayedSaving)
        rivals = [one for one in before if _compete(one[1], finding)]
        if rivals:
            edits = [edit for _, _, other in rivals for edit in other.edits]
            # What was told may be less than what a replay gives: findings are limited to what they claim.
            left_us = replay.most_us([*edits, *saving.edits]) - sum(other.high_us for _, _, other in rivals)
            if left_us < saving.high_us - _ALIKE_SHARE * step_us:
                saving = replace(saving, low_us=min(saving.low_us, max(left_us, 0.0)), high_us=max(left_us, 0.0))
                yield place, _less(finding, saving, rivals[0][0], step_us)
        before.append((rule, finding, saving))


def _within(
    found: Sequence[tuple[_Place, str, Finding]], parts_us: Mapping[str, float], step_us: float
) -> Iterator[tuple[_Place, Finding]]:
    """Those for which the ones before them leave less of the parts that they claim."""
    left_us, owners = dict(parts_us), dict[str, str]()
    for place, rule, finding in found:
        saving = finding.saving
        if saving is None or not finding.claims:
            continue
        room_us = sum(left_us.get(part, 0.0) for part in finding.claims)
        rivals = [owners[part] for part in finding.claims if part in owners]
        if rivals and room_us < saving.high_us - _ALIKE_SHARE * step_us:
            saving = replace(saving, low_us=min(saving.low_us, room_us), high_us=room_us)
            yield place, _less(finding, saving, rivals[0], step_us)
        takes_us = min(saving.high_us, room_us)
        for part in finding.claims:
            part_us = min(takes_us, left_us.get(part, 0.0))
            if part_us > 0:
                left_us[part], takes_us, owners[part] = left_us[part] - part_us, takes_us - part_us, rule


def _idle(finding: Finding) -> bool:
    """Whether it saves idle time for the most part, which it names first, or does not say what.

    Where mostly kernels shrink, what is idle changes with them.
    """
    return not finding.claims or finding.claims[0].startswith("idle_")


def _compete(one: Finding, other: Finding) -> bool:
    """Whether both may shrink the same idle time; what claims nothing may shrink any."""
    return not one.claims or not other.claims or bool(set(one.claims) & set(other.claims))


def _fused(finding: Finding) -> int:
    """How many rows it launches at once: what does that to all of them saves whatever launches cost."""
    edits = finding.saving.edits if isinstance(finding.saving, ReplayedSaving) else ()
    return sum(len(edit.rows) for edit in edits if edit.what == "fuse")


def _less(finding: Finding, left: Saving, rival: str, step_us: float) -> Finding:
    if left.high_us < NOTHING_SHARE * step_us:
        why = f"no number: `{rival}` saves the same idle time; either change does"
        return replace(finding, saving=None, measured_us=0.0, severity="low", facts={**finding.facts, "saving": why})
    how = f"{left.how}; without what `{rival}` saves of the same idle time"
    measured_us = None if finding.measured_us is None else min(finding.measured_us, left.high_us)
    return replace(finding, saving=replace(left, how=how), measured_us=measured_us)
