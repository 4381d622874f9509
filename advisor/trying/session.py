"""The order of a session: base against base, each candidate, the proven ones together, and each of them left out."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from advisor.gate import sequential
from advisor.gate.files import GateError
from advisor.gate.pairs import Side, SideFailedError
from advisor.model import Numbers, Treatment, Trial, Tried
from advisor.trying import numbers
from advisor.trying.candidates import Candidate
from advisor.trying.decide import Design, Judged, judge
from advisor.trying.numbers import Band
from advisor.trying.pairing import Measure, Measured
from advisor.trying.treatments import merged, treated

Say = Callable[[str], None]

# Pairs of base against base, the last of them with other seeds.
SELF_TEST = 4
# Pairs for each question whether one of several proven changes contributes: nothing is claimed, so a look suffices.
_LEFT_OUT = 4
# Status of a process that the kernel ended for its memory, as a signal and as a shell passes it on.
_KILLED = (-9, 137)
_MEMORY = ("out of memory", "outofmemory", "memoryerror", "can't allocate memory", "bad_alloc")


@dataclass(slots=True)
class Session:
    """What is measured so far. `tried` is whole at any moment, so that an interrupted session shows what it has."""

    base: Side
    measure: Measure
    budget_s: float
    say: Say
    now: Callable[[], float] = time.monotonic
    began: float = 0.0
    band: Band = field(default_factory=Band)
    floor: float = 0.0
    noise: float | None = None
    pair_s: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    together: Trial | None = None
    contributions: list[Trial] = field(default_factory=list)
    design: Design = field(default_factory=lambda: Design(1))

    def run(self, candidates: Sequence[Candidate]) -> Tried:
        """Tries the candidates. Raises SideFailedError where the script itself, unchanged, fails."""
        # The set of proven changes may be called faster as well, and again without those that add nothing.
        self.design = Design(len(candidates) + (len(candidates) > 1) + (len(candidates) > 2))
        self._self_test()
        for number, candidate in enumerate(candidates, start=1):
            self._try(candidate, f"candidate {number} of {len(candidates)}")
        proven = [trial for trial in self.trials if trial.verdict == "faster"]
        if len(proven) > 1:
            self._combine(sorted(proven, key=lambda trial: -(trial.gain or 0.0)))
        return self.tried()

    def tried(self) -> Tried:
        """What was measured until now."""
        return Tried(
            tuple(self.trials),
            self.together,
            tuple(self.contributions),
            self.noise,
            self.band.repeats,
            self.design.error,
            self.budget_s,
            self.now() - self.began,
        )

    def left_s(self) -> float:
        """What is left of the budget."""
        return self.budget_s - (self.now() - self.began)

    def _self_test(self) -> None:
        same, other = treated(self.base, ()), treated(self.base, (), shift=1)
        ratios, times, own = [], [], 0.0
        repeats: list[bool] = []
        for number in range(1, SELF_TEST + 1):
            last = number == SELF_TEST
            found = self.measure(same, other if last else same)
            ratios.append(found.pair.ratio)
            times.append(found.seconds)
            losses = found.base.losses, found.head.losses
            if last:
                seeds = numbers.distance(*losses) if all(losses) else None
                self.band = Band(all(repeats) if repeats else None, own, seeds)
            elif all(losses):
                repeats.append(numbers.same(*losses))
                own = max(own, numbers.distance(*losses))
            self.pair_s = statistics.fmean(times)
            self._tell(f"base against base, pair {number} of {SELF_TEST}", found, SELF_TEST - number)
        self.floor = sequential.noise_floor(ratios)
        self.noise = math.expm1(self.floor)

    def _try(self, candidate: Candidate, name: str) -> None:
        trial = _trial_of(candidate)
        if self.left_s() < self.design.looks[0] * self.pair_s:
            self.trials.append(replace(trial, why=f"the budget of {self.budget_s / 60:.3g} min was spent"))
            return
        self.trials.append(self._measured(trial, candidate.treatments, name, self.design.looks))

    def _measured(
        self,
        trial: Trial,
        treatments: Sequence[Treatment],
        name: str,
        looks: Sequence[int],
        instead_of: Sequence[Treatment] = (),
    ) -> Trial:
        """The trial with what its pairs say of these treatments instead of others (none: the script as it is)."""
        before, after = treated(self.base, instead_of), treated(self.base, treatments)
        found: list[Measured] = []
        judged: Judged | None = None
        try:
            for look in looks:
                if found and self.left_s() < (look - len(found)) * self.pair_s:
                    break
                while len(found) < look:
                    found.append(self.measure(before, after))
                    self._tell(f"{name}, pair {len(found)} of {looks[-1]}", found[-1], look - len(found))
                    if not found[0].head.reached and _inside(treatments):
                        return _without_effect(trial, found[0])
                    if _numbers(found[-1:], self.band)[0] == "outside seeds":
                        return _changes_training(trial, found[-1], self.band)
                judged = judge([one.pair.ratio for one in found], self.design, self.floor)
                if judged.final:
                    break
        except GateError as failure:
            if isinstance(failure, SideFailedError) and failure.side is before:
                raise
            return _failed(trial, failure)
        assert judged is not None
        return _told(trial, found, judged, self.band)

    def _combine(self, proven: Sequence[Trial]) -> None:
        """The proven changes at once; then without each of them, so that what contributes nothing is dropped."""
        every = merged(one for trial in proven for one in trial.treatments)
        name = f"{len(proven)} changes together"
        needed = (self.design.looks[0] + len(proven) * _LEFT_OUT) * self.pair_s
        self.together = _together(proven, every)
        if self.left_s() < needed:
            why = f"about {needed:.0f} s more would be needed; raise --budget"
            self.together = replace(self.together, why=why)
            return
        self.together = self._measured(self.together, every, name, self.design.looks)
        if self.together.verdict != "faster":
            return
        kept = []
        for number, trial in enumerate(proven, start=1):
            if self.left_s() < _LEFT_OUT * self.pair_s:
                kept.append(trial)
                continue
            fewer = merged(one for other in proven if other is not trial for one in other.treatments)
            # The whole set against the set without it: what is gained is what this one contributes.
            bare = Trial(trial.title, "not tried", "", trial.rules, trial.risk, trial.treatments)
            name = f"without {number} of {len(proven)}"
            contribution = self._measured(bare, every, name, (_LEFT_OUT,), fewer)
            self.contributions.append(contribution)
            if (contribution.gain or 0.0) > 0:
                kept.append(trial)
        if len(kept) == len(proven):
            return
        if len(kept) == 1:
            self.together = replace(kept[0], why="the others add nothing to it")
        elif kept and self.left_s() >= self.design.looks[0] * self.pair_s:
            fewer = merged(one for trial in kept for one in trial.treatments)
            name = f"{len(kept)} changes together"
            self.together = self._measured(_together(kept, fewer), fewer, name, self.design.looks)

    def _tell(self, name: str, found: Measured, more: int) -> None:
        speed = 1e6 / found.pair.head_us
        saved = -math.expm1(found.pair.ratio)
        self.say(f"{name}: {speed:.4g} steps/s, saves {saved:.1%}, about {more * self.pair_s:.0f} s left")


def _inside(treatments: Sequence[Treatment]) -> bool:
    """Whether any of them acts in the process, which says what it reached; variables of the environment say nothing."""
    return any(one.name != "environment" for one in treatments)


def _trial_of(candidate: Candidate) -> Trial:
    return Trial(
        candidate.title,
        "not tried",
        "",
        candidate.rules,
        candidate.risk,
        candidate.treatments,
        candidate.low,
        candidate.high,
    )


_RISKS = ("exact", "numerics", "semantics")


def _together(proven: Sequence[Trial], treatments: tuple[Treatment, ...]) -> Trial:
    rules = tuple(dict.fromkeys(rule for trial in proven for rule in trial.rules))
    risk = max((trial.risk for trial in proven), key=_RISKS.index)
    return Trial("; ".join(trial.title for trial in proven), "not tried", "", rules, risk, treatments)


def _without_effect(trial: Trial, found: Measured) -> Trial:
    missed = found.head.missed
    why = f"not reached: {'; '.join(missed)}" if missed else "the script never comes to what it changes"
    return replace(trial, verdict="no effect", why=why, missed=missed)


def _changes_training(trial: Trial, found: Measured, band: Band) -> Trial:
    """It will never be called faster, so it is measured no further."""
    seen, reason = _numbers([found], band)
    why = reason or "losses differ by more than other seeds make them"
    reached = found.head.reached
    return replace(trial, verdict="changes training", why=why, numbers=seen, reached=reached)


def _failed(trial: Trial, failure: GateError) -> Trial:
    if not isinstance(failure, SideFailedError):  # it hangs, or has too few steps: the script as it is had enough
        return replace(trial, verdict="failed", why=str(failure))
    last = failure.last.lower()
    if failure.status in _KILLED or any(word in last for word in _MEMORY):
        return replace(trial, verdict="out of memory", why=failure.last or "ended by the system")
    return replace(trial, verdict="failed", why=f"status {failure.status}: {failure.last}")


def _told(trial: Trial, found: Sequence[Measured], judged: Judged, band: Band) -> Trial:
    """The trial with the figures of its pairs and what its losses say."""
    seen, reason = _numbers(found, band)
    verdict, why = judged.verdict, ""
    first = found[0]
    result = replace(
        trial,
        gain=judged.gain,
        low=judged.low,
        high=judged.high,
        pairs=judged.pairs,
        base_us=statistics.median(one.pair.base_us for one in found),
        us=statistics.median(one.pair.head_us for one in found),
        numbers=seen,
        memory_bytes=first.head.memory_bytes or None,
        base_memory_bytes=first.base.memory_bytes or None,
        reached=first.head.reached,
        missed=first.head.missed,
    )
    if trial.risk == "exact" and band.repeats and seen == "within seeds":
        why = "losses are not bitwise equal, though the fix is labelled exact"
    return replace(result, verdict=verdict, why=why or reason)


def _numbers(found: Sequence[Measured], band: Band) -> tuple[Numbers, str]:
    """The worst that any pair shows: one pair whose losses leave the range is enough."""
    order = ("equal", "not compared", "within seeds", "outside seeds")
    every: Iterator[tuple[Numbers, str]] = (numbers.compare(one.base.losses, one.head.losses, band) for one in found)
    return max(every, key=lambda said: order.index(said[0]))
