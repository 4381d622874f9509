"""Time that several fixes would save counts once: each finding has what its fix saves once those before it are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.costs.replay import EditedSaving, Replay, ReplayedSaving
from advisor.model import Finding, Outcome, Saving, changes_less, finding_order, of_whole_model
from advisor.model.savings import NOTHING_SHARE
from advisor.replay.edits import Edit

# Two replays of one graph settle to a part in ten thousand of the step each.
_ALIKE_SHARE = 0.001
_Place = tuple[int, int]


class _Counted(Struct, frozen=True, eq=False):
    """A finding with a saving, whose it is, and where it stands: number of the outcome, number in it.

    whole  whether its fix changes the whole model, wherever the time is lost: a compiler, one graph of all launches
    """

    place: _Place
    rule: str
    finding: Finding
    saving: Saving
    whole: bool

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What its fix changes in the replayed graph, empty where that is not known."""
        return self.saving.edits if isinstance(self.saving, EditedSaving) else ()

    @property
    def of_idle_time(self) -> bool:
        """Whether it saves idle time for the most part, which it names first, or does not say what.

        Where mostly kernels shrink, what is idle changes with them.
        """
        return not self.finding.claims or self.finding.claims[0].startswith("idle_")

    @property
    def fused(self) -> int:
        """How many rows it launches at once: what does that to all of them saves whatever launches cost."""
        return sum(len(edit.rows) for edit in self.edits if edit.what == "fuse")

    @property
    def trains_otherwise(self) -> bool:
        """Whether its fix changes the training itself."""
        return self.finding.fix is not None and self.finding.fix.risk == "semantics"

    def changes_more_than(self, other: _Counted) -> bool:
        """Whether its fix changes the whole model, or the training, where another changes a place."""
        if not (self.finding.fix and other.finding.fix):
            return False
        return (self.whole and not other.whole) or (self.trains_otherwise and not other.trains_otherwise)

    def compete(self, other: _Counted) -> bool:
        """Whether both may shrink the same time; what claims nothing may shrink any."""
        mine, others = self.finding.claims, other.finding.claims
        return not mine or not others or bool(set(mine) & set(others))


def counted_once(
    outcomes: Sequence[Outcome],
    replay: Replay | None,
    step_us: float,
    parts_us: Mapping[str, float],
    least: Mapping[str, float],
) -> tuple[Outcome, ...]:
    """The outcomes with savings that add up: each finding has what it saves on the step as it is after those before it.

    First come changes of single places, by what they save, certain savings before bounds; what may be justified and
    rules that nothing has confirmed behind those, fusions of most launches last, then assumed bounds. Then comes what
    changes the whole model at once, then what trains differently, and is in no graph. Each is replayed with those
    before it that claim the same time. Without a replay, or edits, idle time is divided by the parts of the step:
    together they save no more of a part than it holds.

    A finding with nothing left, or less than the replay is off, has no number, and is not told where another asks
    for the same change at the same place. One with less left than its rule reports
    (`least`, rule id -> share of the step) is not told, nor is one with nothing left that changes more than the other:
    `how` of the other names it, and its rule is clear.

    parts_us: the parts of the breakdown, on the scale of the savings.
    """
    found = _in_turn(outcomes, replay, step_us)
    told = _Division(replay, step_us, parts_us, least).of(found)
    return tuple(_with(outcome, at, told) for at, outcome in enumerate(outcomes)) if told else tuple(outcomes)


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


def _in_turn(outcomes: Sequence[Outcome], replay: Replay | None, step_us: float) -> list[_Counted]:
    """Findings that count, in their order: those whose edits are known, and of others those of idle time."""
    found = [
        (outcome, _Counted((at, n), outcome.rule, finding, finding.saving, _whole(finding, replay)))
        for at, outcome in enumerate(outcomes)
        for n, finding in enumerate(outcome.findings)
        if finding.saving is not None and finding.recoverable and finding.run_us is None
    ]
    return [
        one
        for _, one in sorted(found, key=lambda pair: _turn(pair[0], pair[1], step_us))
        if one.of_idle_time or (replay is not None and one.edits)
    ]


def _whole(finding: Finding, replay: Replay | None) -> bool:
    saving = finding.saving
    fused = [edit.rows for edit in saving.edits if edit.what == "fuse"] if isinstance(saving, EditedSaving) else []
    all_launches = replay is not None and any(np.array_equal(rows, replay.launching) for rows in fused)
    return of_whole_model(finding) or all_launches


def _turn(outcome: Outcome, one: _Counted, step_us: float) -> tuple[object, ...]:
    finding = one.finding
    order = finding_order(outcome.rule, finding, step_us)
    unlikely = (not outcome.confirmed, finding.at_most == "low")
    # What is read more seldom is "semantics" as well; its place is in the graph.
    otherwise = one.trains_otherwise and not one.edits
    # A bound that nothing replayed takes nothing from what a replay gives.
    assumed = bool(one.edits) and not isinstance(one.saving, ReplayedSaving) and one.saving.is_bound(step_us)
    return otherwise, one.whole, assumed, *unlikely, one.fused, order, one.place


def _with(outcome: Outcome, at: int, told: Mapping[_Place, Finding | str]) -> Outcome:
    """The outcome with the findings as they are told; clear where none of them is."""
    now = [told.get((at, n), finding) for n, finding in enumerate(outcome.findings)]
    kept = tuple(one for one in now if isinstance(one, Finding))
    if now and not kept:
        why = next(one for one in now if isinstance(one, str))
        return replace(outcome, status="clear", findings=(), reason=why)
    return replace(outcome, findings=kept)


class _Division(Struct):
    """Time divided among findings in their order.

    parts_us: the parts of the step
    """

    replay: Replay | None
    step_us: float
    parts_us: Mapping[str, float]
    least: Mapping[str, float]

    def of(self, found: Sequence[_Counted]) -> dict[_Place, Finding | str]:
        """What is told in place of the findings that others leave less to: another one, or the reason why none."""
        told: dict[_Place, Finding | str] = {}
        before: list[_Counted] = []
        for one in found:
            rivals = [other for other in before if other.compete(one) and self._divides(one, other)]
            left_us = self._left_us(one, rivals)
            if left_us >= one.saving.high_us - _ALIKE_SHARE * self.step_us:
                before.append(one)
                continue
            owner = rivals[0] if len(rivals) == 1 else min(rivals, key=lambda other: self._left_us(one, [other]))
            nothing_us, more = self._nothing_us(one, rivals), one.changes_more_than(owner)
            if left_us >= max(nothing_us, self.least.get(one.rule, 0.0) * self.step_us):
                less = _less(one, left_us, owner.rule)
                told[one.place] = less.finding
                before.append(less)
            elif more or left_us >= nothing_us:
                what = "the same time and changes less" if more else "most of the same time"
                told[one.place] = f"`{owner.rule}` saves {what}"
                before[before.index(owner)] = joined = _joined(owner, one)
                told[owner.place] = joined.finding
            elif same := next((other for other in found if _same_change(one, other)), None):
                told[one.place] = f"`{same.rule}` tells the same change"
            else:
                told[one.place] = _without_number(one, owner.rule)
        return told

    def _divides(self, one: _Counted, other: _Counted) -> bool:
        """Whether it is known what one leaves to the other: where a replay has the edits of both, or of parts alone.

        Beside a replay parts tell what is left to a change of more than a place; two models of places may add up.
        """
        return self.replay is None or bool(one.edits and other.edits) or one.changes_more_than(other)

    def _nothing_us(self, one: _Counted, rivals: Sequence[_Counted]) -> float:
        """Below this nothing is left: it is within the error of the replay."""
        together_us = one.saving.high_us + sum(other.saving.high_us for other in rivals)
        error = self.replay.error_share if self.replay is not None and one.edits else 0.0
        return max(NOTHING_SHARE * self.step_us, error * together_us)

    def _left_us(self, one: _Counted, rivals: Sequence[_Counted]) -> float:
        """What a finding saves at most once these others are made."""
        if not rivals:
            return one.saving.high_us
        if self.replay is None or not one.edits:
            return min(one.saving.high_us, self._room_us(one, rivals))
        played = [other for other in rivals if other.edits]
        room_us = self._room_us(one, [other for other in rivals if not other.edits])
        most_us, edits = self.replay.most_us, [edit for other in played for edit in other.edits]
        # Findings are limited to what they claim, so that a replay may give more than was told of the others.
        others_us = min(most_us(edits), sum(other.saving.high_us for other in played))
        # What a saving has beyond its edits (caches, the profiler) is its own.
        beyond_us = max(one.saving.high_us - most_us(one.edits), 0.0)
        left_us = max(most_us([*edits, *one.edits]) - others_us, 0.0) + beyond_us
        return min(one.saving.high_us, left_us, room_us if len(played) < len(rivals) else left_us)

    def _room_us(self, one: _Counted, rivals: Sequence[_Counted]) -> float:
        """What these others leave of the parts that a finding claims: each takes first what it names first."""
        if not one.finding.claims:
            return one.saving.high_us
        left_us = dict(self.parts_us)
        for other in rivals:
            takes_us = other.saving.high_us
            for part in other.finding.claims:
                part_us = min(takes_us, left_us.get(part, 0.0))
                if part_us > 0:
                    left_us[part], takes_us = left_us[part] - part_us, takes_us - part_us
        return sum(left_us.get(part, 0.0) for part in one.finding.claims)


def _same_change(one: _Counted, other: _Counted) -> bool:
    """Whether two rules ask for one change at one place."""
    mine, others = one.finding, other.finding
    both = mine.fix is not None and others.fix is not None and mine.fix.title == others.fix.title
    return both and one.rule != other.rule and mine.where[:1] == others.where[:1]


def _less(one: _Counted, left_us: float, rival: str) -> _Counted:
    """The finding with what another leaves to it."""
    how = f"{one.saving.how}; without what `{rival}` saves of the same time"
    saving = replace(one.saving, low_us=min(one.saving.low_us, left_us), high_us=left_us, how=how)
    measured_us = None if one.finding.measured_us is None else min(one.finding.measured_us, left_us)
    finding = replace(one.finding, saving=saving, measured_us=measured_us)
    return _Counted(one.place, one.rule, finding, saving, one.whole)


def _joined(owner: _Counted, one: _Counted) -> _Counted:
    """The finding with the name of one that its fix leaves nothing to."""
    saving = replace(owner.saving, how=f"{owner.saving.how}; `{one.rule}` would save the same time, and changes more")
    return _Counted(owner.place, owner.rule, replace(owner.finding, saving=saving), saving, owner.whole)


def _without_number(one: _Counted, rival: str) -> Finding:
    """The diagnosis alone; idle time that another finding has told makes no second one severe."""
    why = f"no number: `{rival}` saves the same {'idle ' * one.of_idle_time}time; either change does"
    facts = {**one.finding.facts, "saving": why}
    return replace(one.finding, saving=None, counted_with=rival, measured_us=0.0, severity="low", facts=facts)
