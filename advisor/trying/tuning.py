"""The search of `advisor tune`: batch sizes first, then all knobs with Optuna, then the knee, then fresh pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.errors import UsageError
from advisor.gate.files import GateError
from advisor.gate.pairs import available_bytes
from advisor.model import Trial
from advisor.trying import numbers
from advisor.trying.knobs import AS_IS, BATCH, Knob, Setting, treatments_of, words_of
from advisor.trying.pairing import Measure, Measured
from advisor.trying.session import Session, failed

# Doublings of the batch size at most: a training whose batches are larger by more is another one.
_DOUBLINGS = 8
# Settings that Optuna proposes at most; each is new.
_MOST_PROPOSED = 100


@dataclass(frozen=True, slots=True)
class Point:
    """A setting that was measured. ratio: log time of a sample against the script's own; None where `why` says why."""

    setting: dict[str, str]
    ratio: float | None
    why: str = ""
    samples_per_s: float | None = None  # see `rates`
    memory_bytes: int = 0
    reached: tuple[str, ...] = ()

    @property
    def speed(self) -> float:
        """How many times as fast as the script as it is."""
        return math.exp(-self.ratio) if self.ratio is not None else 0.0


@dataclass(slots=True)
class Search:
    """What is known so far; `best` may be asked at any moment.

    knee: a setting that loses no more than this share of the best one's speed, and asks for less, is preferred
    """

    session: Session
    knobs: list[Knob]
    knee: float = 0.05
    points: dict[str, Point] = field(default_factory=dict)
    banned: dict[tuple[str, str], str] = field(default_factory=dict)
    batches: list[str] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def run(self, full: Measure) -> tuple[Point, Trial | None]:
        """The setting to use, and its fresh measurement against the script as it is; None where nothing is faster.

        full: measures the pairs of the last step, which are longer.
        """
        session = self.session
        session.self_test()
        if session.noise is None:
            return Point({}, 0.0), None
        self._ladder()
        self._alone()
        self._propose()
        chosen = self._simplest(self._at_the_knee(self.best()))
        if not chosen.setting:
            return chosen, None
        session.measure = full
        treatments = treatments_of(chosen.setting, self.knobs)
        trial = Trial(words_of(chosen.setting), "not tried", "", (), "semantics", treatments)
        return chosen, session.measured(
            trial, treatments, "the chosen against the current setting", session.design.looks
        )

    def best(self) -> Point:
        """The fastest point; the script as it is where nothing beats it by more than the noise."""
        known = [one for one in self.points.values() if one.ratio is not None]
        fastest = min(known, key=lambda one: one.ratio or 0.0, default=Point({}, 0.0))
        return fastest if fastest.speed > 1 + self._noise() else Point({}, 0.0)

    def curve(self, setting: Setting) -> list[Point]:
        """Points that differ from the setting in the batch size only, smallest first."""
        others = {name: label for name, label in setting.items() if name != BATCH}
        found = [one for one in self.points.values() if {k: v for k, v in one.setting.items() if k != BATCH} == others]
        if not others:
            found.append(Point({}, 0.0))
        return sorted(found, key=lambda one: int(one.setting.get(BATCH, "1")))

    def today(self) -> float:
        """Samples a second of the script as it is: the median over all pairs; 0 where none were seen."""
        return statistics.median(self.rates) if self.rates else 0.0

    # -- the steps

    def _ladder(self, *, least: float = 0.03) -> None:  # a doubling that gains less is not worth another
        """Doubles the batch until it no longer fits, or two doublings gained next to nothing."""
        if all(knob.name != BATCH for knob in self.knobs):
            return
        last, idle = Point({}, 0.0), 0
        for scale in (str(2**power) for power in range(1, _DOUBLINGS + 1)):
            if not self._room(last, scale) or not self._time(pairs=1):
                return
            point = self._point({BATCH: scale})
            if point.ratio is None:
                return
            self.batches.append(scale)
            idle = 0 if point.speed > (1 + least) * last.speed else idle + 1
            if idle == 2:
                return
            last = point

    def _room(self, last: Point, scale: str) -> bool:
        """Whether a host has room for a batch twice as large; a device says so itself."""
        half = self.points.get(words_of({BATCH: str(int(scale) // 4)}))
        if half is None or not last.memory_bytes or not available_bytes():
            return True
        grown = 2 * max(0, last.memory_bytes - half.memory_bytes)
        if grown < available_bytes():
            return True
        self.session.say(f"batch x {scale} would need {grown / 1e9:.1f} GB more than available, so it is not measured")
        return False

    def _alone(self) -> None:
        """Choices that round differently, each alone and with the script's own batches, so that losses are compared."""
        for knob in self.knobs:
            for label in knob.choices if knob.rounds else ():
                if not self._time(pairs=1):
                    self.banned[knob.name, label] = "the budget was too short to compare its losses"
                elif (point := self._point({knob.name: label})).ratio is None:
                    self.banned[knob.name, label] = point.why

    def _propose(self) -> None:
        """Optuna proposes settings until the time for them is over."""
        optuna = _optuna()
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, multivariate=True))
        if self.batches:
            study.enqueue_trial({BATCH: self.batches[-1]}, skip_if_exists=True)
        for _ in range(_MOST_PROPOSED):
            if not self._time(pairs=2):
                return
            trial = study.ask()
            setting = self._ask(trial)
            known = self.points.get(words_of(setting))
            point = known or (self._point(setting, trial) if setting else Point({}, 0.0))
            if point.ratio is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, point.ratio)

    def _ask(self, trial: Any) -> dict[str, str]:
        setting = {}
        for knob in self.knobs:
            labels = self.batches if knob.name == BATCH else list(knob.choices)
            allowed = [label for label in labels if (knob.name, label) not in self.banned]
            label = trial.suggest_categorical(knob.name, [AS_IS, *allowed]) if allowed else AS_IS
            if label != AS_IS:
                setting[knob.name] = label
        return setting

    def _at_the_knee(self, best: Point) -> Point:
        """The smallest batch with the other choices of the best that keeps all but a little of its speed."""
        chosen = best
        for size in reversed([AS_IS, *self.batches]):
            if BATCH not in best.setting or (size != AS_IS and int(size) >= int(best.setting[BATCH])):
                continue
            others = {name: label for name, label in best.setting.items() if name != BATCH}
            smaller = others if size == AS_IS else {BATCH: size, **others}
            point = self._known(smaller)
            if point is None or point.speed < (1 - self.knee) * best.speed:
                break
            chosen = point
        return chosen

    def _simplest(self, chosen: Point, *, least: float = 0.02) -> Point:  # of the speed: as `try` asks of a win
        """Without each choice that contributes next to nothing."""
        for name in [name for name in chosen.setting if name != BATCH]:
            fewer = {knob: label for knob, label in chosen.setting.items() if knob != name}
            point = self._known(fewer)
            if point is not None and point.speed > (1 - least) * chosen.speed:
                chosen = point
        return chosen

    # -- points

    def _known(self, setting: dict[str, str]) -> Point | None:
        """The point of a setting, measured if there is time; None where it cannot be had."""
        if not setting:
            return Point({}, 0.0)
        point = self.points.get(words_of(setting))
        if point is None and self._time(pairs=1, reserved=2 * self.session.design.looks[0]):
            point = self._point(setting)
        return point if point is not None and point.ratio is not None else None

    def _point(self, setting: dict[str, str], trial: Any = None) -> Point:
        """Measures a setting: one pair, and a second one unless the first shows that it cannot win."""
        session, name = self.session, words_of(setting)
        treatments = treatments_of(setting, self.knobs)
        best = self.best()
        found: list[Measured] = []
        try:
            before, after = session.side_of(session.base, ()), session.side_of(session.base, treatments)
            for number in (1, 2):
                found.append(session.measure(before, after))
                # Other work on the machine makes pairs longer than those of the self-test were.
                session.pair_s = (session.pair_s + found[-1].seconds) / 2
                if rate := _rate(found[-1]):
                    self.rates.append(rate)
                ratio = statistics.fmean(one.pair.ratio for one in found)
                if number == 1 and (trial is None or self._hopeless(ratio, best)):
                    break
            point = self._of_pairs(setting, found)
        except GateError as failure:
            if session.ended_by(failure, before):
                raise
            outcome = failed(Trial(name, "failed"), failure, before)
            point = Point(dict(setting), None, f"{outcome.verdict}: {outcome.why}")
        self.points[name] = point
        said = f"{point.speed:.3g} times as fast" if point.ratio is not None else point.why
        session.say(f"{name}: {said}; about {max(0.0, session.left_s()):.0f} s of the budget left")
        return point

    def _hopeless(self, ratio: float, best: Point) -> bool:
        """Whether a first pair is so far behind the best that noise does not explain it."""
        return ratio > (best.ratio or 0.0) + 3 * max(self._noise(), 0.02)  # 2 %: four pairs may agree by chance

    def _of_pairs(self, setting: Setting, found: Sequence[Measured]) -> Point:
        first, treatments = found[0], treatments_of(setting, self.knobs)
        if not first.head.reached and any(one.name != "environment" for one in treatments):
            return Point(dict(setting), None, f"no effect: {'; '.join(first.head.missed) or 'nothing was reached'}")
        seen = {numbers.compare(one.base.losses, one.head.losses, self.session.band)[0] for one in found}
        if "outside seeds" in seen and all(one.work == 1 for one in found):
            return Point(dict(setting), None, "changes training: losses differ by more than between seeds")
        ratio = statistics.fmean(one.pair.ratio for one in found)
        return Point(dict(setting), ratio, "", None, first.head.memory_bytes, first.head.reached)

    def _noise(self) -> float:
        return self.session.noise or 0.0

    def _time(self, pairs: int, reserved: int | None = None) -> bool:
        """Whether so many pairs fit into the budget, and after them the knee and the last measurement.

        Pairs of the last measurement are taken to be twice as long.
        """
        session = self.session
        last = 2 * session.design.looks[0]
        kept = last + len(self.knobs) if reserved is None else reserved
        return session.left_s() > (pairs + kept) * session.pair_s


def _rate(of: Measured) -> float:
    """Samples a second of the base."""
    return of.base.counts.get("samples", 0.0) / of.pair.base_us * 1e6


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as failure:
        raise UsageError("advisor tune needs Optuna: pip install 'torch-advisor[tune]'") from failure
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def check_optuna() -> None:
    """Raises UsageError, before anything is measured, where Optuna is not installed."""
    _optuna()


def rates(points: Iterable[Point], today: float) -> list[Point]:
    """The points with the rate that belongs to their ratio: rates of different pairs have seen different neighbours."""
    return [replace(one, samples_per_s=today * one.speed if one.ratio is not None else None) for one in points]
