"""The order of a session: base against base, each candidate, the proven ones together, and each of them left out."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from advisor.gate import sequential
from advisor.gate.files import GateError
from advisor.gate.pairs import Side, SideFailedError, Spread
from advisor.model import Numbers, Speed, Treatment, Trial, Tried
from advisor.trying import mechanism, numbers
from advisor.trying.candidates import Candidate
from advisor.trying.decide import Design, Judged, confirm, judge
from advisor.trying.numbers import Band
from advisor.trying.pairing import Facts, Measure, Measured, of_memory
from advisor.trying.patched import PatchError
from advisor.trying.treatments import merged, treated

Say = Callable[[str], None]
# Makes the side with treatments of the script as it is.
SideOf = Callable[[Side, Sequence[Treatment]], Side]

# Pairs of base against base, the last of them with other seeds.
SELF_TEST = 4
# Pairs for each question whether one of several proven changes contributes: nothing is claimed, so a look suffices.
_LEFT_OUT = 4


@dataclass(slots=True)
class _Course:
    """The pairs of one change so far."""

    trial: Trial
    treatments: Sequence[Treatment]
    before: Side
    after: Side
    found: list[Measured] = field(default_factory=list)

    def ratios(self) -> list[float]:
        return [one.pair.ratio for one in self.found]


@dataclass(slots=True)
class Session:
    """What is measured so far. `tried` is whole at any moment, so that an interrupted session shows what it has."""

    base: Side
    measure: Measure
    budget_s: float
    say: Say
    now: Callable[[], float] = time.monotonic
    side_of: SideOf = treated
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
        self.self_test()
        for number, candidate in enumerate(candidates, start=1):
            self._try(candidate, f"candidate {number} of {len(candidates)}")
        proven = [trial for trial in self.trials if trial.verdict == "faster"]
        if len(proven) > 1:
            self._combine(sorted(proven, key=lambda trial: -(trial.gain or 0.0)))
        return self.tried()

    def without_time(self, candidates: Sequence[Candidate], pair_s: float) -> Tried:
        """What is told where not even one pair, of so many seconds, fits into the budget."""
        self.pair_s = pair_s
        self.trials += [replace(_trial_of(candidate), why=self._short()) for candidate in candidates]
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

    def self_test(self) -> None:
        """Base against base. Ends early, without a noise, where no change could be measured after it."""
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
            name = f"base against base, pair {number} of {SELF_TEST}"
            self._tell(name, found, SELF_TEST - number, "differs by", "the first change")
            if self.left_s() < (SELF_TEST - number + self.design.looks[0]) * self.pair_s:
                self.say(f"a pair takes {self.pair_s:.0f} s: {self._short()}")
                return
        self.say(f"a pair takes {self.pair_s:.0f} s: {self.left_s() / self.pair_s:.0f} more fit into the budget")
        self.floor = sequential.noise_floor(ratios)
        self.noise = math.expm1(self.floor)

    def _short(self) -> str:
        pairs = SELF_TEST + self.design.looks[0]
        needed_s = self.now() - self.began + pairs * self.pair_s
        return f"the self-test and one change take {pairs} pairs; pass --budget {math.ceil(needed_s / 60)}m or more"

    def _try(self, candidate: Candidate, name: str) -> None:
        trial = _trial_of(candidate)
        if self.noise is None or self.left_s() < self.design.looks[0] * self.pair_s:
            spent = f"the budget of {self.budget_s / 60:.3g} min was spent"
            self.trials.append(replace(trial, why=self._short() if self.noise is None else spent))
            return
        anew = self.design.confirmation
        self.trials.append(self.measured(trial, candidate.treatments, name, self.design.looks, anew=anew))

    def measured(
        self,
        trial: Trial,
        treatments: Sequence[Treatment],
        name: str,
        looks: Sequence[int],
        instead_of: Sequence[Treatment] = (),
        anew: int = 0,
    ) -> Trial:
        """The trial with what its pairs say of these treatments instead of others (none: the script as it is).

        anew: new pairs that have to confirm what the first ones call faster, where their interval is wide.
        """
        course = _Course(trial, treatments, self.base, self.base)
        judged: Judged | None = None
        try:
            course.before, course.after = self.side_of(self.base, instead_of), self.side_of(self.base, treatments)
            for look in looks:
                if not self._fits(course, look):
                    break
                if ended := self._measure(course, look, f"{name}, pair {{}} of {looks[-1]}"):
                    return ended
                judged = judge(course.ratios(), self.design, self.floor)
                if judged.final:
                    break
            assert judged is not None
            if judged.verdict != "faster" or judged.clear or not anew:
                return _told(trial, course.found, judged, self.band)
            return self._confirmed(course, judged, name, anew)
        except PatchError as failure:
            return replace(trial, verdict="failed", why=str(failure))
        except GateError as failure:
            if self.ended_by(failure, course.before):
                raise
            return failed(trial, failure, course.before)

    def _fits(self, course: _Course, until: int) -> bool:
        """Whether there is time for pairs up to this number. Those of a change take as long as its first ones did."""
        seconds = [one.seconds for one in course.found]
        return not seconds or self.left_s() >= (until - len(seconds)) * statistics.fmean(seconds)

    def _measure(self, course: _Course, until: int, name: str) -> Trial | None:
        """Measures pairs up to this number; the trial, where one of them ends it without a claim."""
        while len(course.found) < until:
            found = self.measure(course.before, course.after)
            course.found.append(found)
            self._tell(name.format(len(course.found)), found, until - len(course.found))
            if not course.found[0].head.reached and (_inside(course.treatments) or course.found[0].head.missed):
                return _without_effect(course.trial, course.found[0])
            if _numbers([found], self.band)[0] == "outside seeds":
                return _changes_training(course.trial, found, self.band)
        return None

    def _confirmed(self, course: _Course, judged: Judged, name: str, anew: int) -> Trial:
        """The trial after new pairs, which alone have to show a gain as well."""
        first = len(course.found)
        said = f"faster in the first {first} pairs"
        if not self._fits(course, first + anew):
            why, judged = (
                f"{said}; no time to confirm it: raise --budget",
                dataclasses.replace(judged, verdict="not proven"),
            )
            return _told(course.trial, course.found, judged, self.band, why)
        if ended := self._measure(course, first + anew, f"{name}, pair {{}} of {first + anew}, to confirm it"):
            return ended
        ratios = course.ratios()
        judged = confirm(ratios[:first], ratios[first:], self.design, self.floor)
        note = "" if judged.verdict == "faster" else f"{said}, not in {anew} new ones"
        return _told(course.trial, course.found, judged, self.band, note)

    def ended_by(self, failure: GateError, before: Side) -> bool:
        """Whether the script fails without the change, which ends the session.

        Both sides share a machine: a change that takes all memory may leave none for the script as it is, which had
        enough in the self-test.
        """
        if not isinstance(failure, SideFailedError) or failure.side is not before:
            return False
        return self.noise is None or not of_memory(failure)

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
        self.together = self.measured(self.together, every, name, self.design.looks)
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
            name = f"what change {number} of {len(proven)} adds"
            contribution = self.measured(bare, every, name, (_LEFT_OUT,), fewer)
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
            self.together = self.measured(_together(kept, fewer), fewer, name, self.design.looks)

    def _tell(self, name: str, found: Measured, more: int, by: str = "saves", then: str = "the next check") -> None:
        speed, what = 1e6 / found.pair.head_us, "steps/s"
        if samples := found.head.counts.get("samples"):
            speed, what = speed * samples, "samples/s"
        left = f"; {then} in about {more * self.pair_s:.0f} s" if more else ""
        self.say(f"{name}: {speed:.4g} {what}, {by} {-100 * math.expm1(found.pair.ratio):.1f} %{left}")


def _inside(treatments: Sequence[Treatment]) -> bool:
    """Whether any of them acts in the process, which says what it reached; variables are not always looked at."""
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


_RISKS = ("exact", "draws", "numerics", "semantics")


def _together(proven: Sequence[Trial], treatments: tuple[Treatment, ...]) -> Trial:
    rules = tuple(dict.fromkeys(rule for trial in proven for rule in trial.rules))
    risk = max((trial.risk for trial in proven), key=_RISKS.index)
    return Trial("; ".join(trial.title for trial in proven), "not tried", "", rules, risk, treatments)


def _without_effect(trial: Trial, found: Measured) -> Trial:
    missed = found.head.missed
    why = f"not reached: {'; '.join(missed)}" if missed else "the script never reaches what it changes"
    return replace(trial, verdict="no effect", why=why, missed=missed)


def _changes_training(trial: Trial, found: Measured, band: Band) -> Trial:
    """It will never be called faster, so it is measured no further."""
    seen, reason = _numbers([found], band)
    why = reason or "losses differ by more than between seeds"
    reached = found.head.reached
    return replace(trial, verdict="changes training", why=why, numbers=seen, reached=reached)


def failed(trial: Trial, failure: GateError, before: Side) -> Trial:
    """The trial with what its process, or that of the unchanged side, ended with: out of memory, or another failure."""
    if not isinstance(failure, SideFailedError):  # it hangs, or has too few steps: the script as it is had enough
        return replace(trial, verdict="failed", why=str(failure))
    if of_memory(failure):
        beside = "the unchanged script, beside the changed one: " if failure.side is before else ""
        return replace(trial, verdict="out of memory", why=f"{beside}{failure.last or 'killed by the system'}")
    return replace(trial, verdict="failed", why=f"status {failure.status}: {failure.last}")


def _told(trial: Trial, found: Sequence[Measured], judged: Judged, band: Band, note: str = "") -> Trial:
    """The trial with the figures of its pairs and what its losses say. note: why it is not proven, if that is known."""
    seen, reason = _numbers(found, band)
    first, counters = found[0], mechanism.of_pairs(found)
    base, changed = _speeds(found)
    moved = mechanism.judge(trial.treatments, counters, judged.gain * base.median_us)
    notes = [note, reason]
    if trial.risk == "exact" and band.repeats and seen == "within seeds":
        notes.append("losses are not bitwise equal, though the fix is labelled exact")
    if judged.verdict == "faster" and moved == "not moved":
        notes.append("faster, but not because of what the finding names")
    return replace(
        trial,
        verdict=judged.verdict,
        why="; ".join(filter(None, notes)),
        gain=judged.gain,
        low=judged.low,
        high=judged.high,
        pairs=judged.pairs,
        base=base,
        changed=changed,
        numbers=seen,
        memory_bytes=first.head.memory_bytes or None,
        base_memory_bytes=first.base.memory_bytes or None,
        reached=first.head.reached,
        missed=first.head.missed,
        work=statistics.median(one.work for one in found),
        mechanism=moved,
        counters=counters,
        first_startup_us=_startup_us(found[:1]),
        startup_us=_startup_us(found[1:]),
    )


def _speeds(found: Sequence[Measured]) -> tuple[Speed, Speed]:
    """Of the script as it is and of the changed one."""

    def middle(values: Iterable[float]) -> float:
        return statistics.median(list(values))

    def speed(times: list[tuple[float, Spread]], facts: list[Facts]) -> Speed:
        mean_us = middle(spread.mean_us for _, spread in times)
        samples = middle(one.counts.get("samples", 0.0) for one in facts)
        rate = samples / mean_us * 1e6 if samples and mean_us else None
        return Speed(middle(us for us, _ in times), mean_us, middle(spread.p90_us for _, spread in times), rate)

    pairs = [one.pair for one in found]
    return (
        speed([(pair.base_us, pair.base) for pair in pairs], [one.base for one in found]),
        speed([(pair.head_us, pair.head) for pair in pairs], [one.head for one in found]),
    )


def _startup_us(found: Sequence[Measured]) -> float | None:
    """What the head took longer to start, its warm-up included."""
    both = [one.head.startup_us - one.base.startup_us for one in found if one.head.startup_us and one.base.startup_us]
    return statistics.median(both) if both else None


def _of_pair(one: Measured, band: Band) -> tuple[Numbers, str]:
    if one.work != 1:
        return "not compared", "each step trains on a different number of samples, which needs another learning rate"
    return numbers.compare(one.base.losses, one.head.losses, band)


def _numbers(found: Sequence[Measured], band: Band) -> tuple[Numbers, str]:
    """The worst that any pair shows: one pair whose losses leave the range is enough."""
    order = ("equal", "not compared", "within seeds", "outside seeds")
    every: Iterator[tuple[Numbers, str]] = (_of_pair(one, band) for one in found)
    return max(every, key=lambda said: order.index(said[0]))
