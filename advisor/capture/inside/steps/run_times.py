"""The whole run on one clock: how long each stretch between two boundaries took, and where it stood meanwhile.

A boundary adds one number to a sum. Only a stretch that was sampled, or that is longer than an ordinary step, is looked
at by itself. Time under our own profiler, and in our own work at boundaries, is added up apart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median_low
from time import perf_counter_ns
from typing import Any, NamedTuple

from ..facts.source.syntax import Trees
from .code_marks import FETCH, ITERATOR, WORKERS
from .forward_passes import ForwardPasses, Passing
from .run_totals import BETWEEN, END, LONG, MOST_PLACES, START, STEP, Totals
from .stack_samples import Place, Sampler, Sampling, Stack
from .step_trend import StepTrend
from .tracker import Tracker
from .training_loops import Home

# A training step that takes so many times the ordinary one is long.
_LONG = 1.5
# One that takes so many times as long as an ordinary step may at most holds other work: its samples tell of that.
_FAR = 2.0
# Steps whose median is the ordinary one: the first eight, then always the last 32.
_FIRST, _RECENT = 8, 32
# In a shorter stretch, such as a batch of a quick evaluation, nobody looks for waits: that would prolong it by 1 %.
_SHORT_NS = 1_000_000
# Moves to another training loop that are kept.
_MOST_LOOPS = 100
# Lines that are kept at which batches are asked for that nothing is trained on.
_MOST_READERS = 20
# Samples of one stretch that are kept: of more, every second one goes, and the others still say where its time went.
_MOST_SAMPLES = 1000

# A sample: its place (its stack, before the way to a training step is known), whether a module in evaluation mode ran,
# the iterator whose batch nothing was trained on so far (0: none), whether an epoch had ended, whether workers of a new
# iterator had given no batch yet.
Sample = tuple[Any, int, int, bool, bool]


class Stretch(NamedTuple):
    """A stretch that was looked at. queued_ns: for how long the loop's thread had no core in it; None if not known."""

    length_ns: int
    samples: list[Sample]
    iteration: int  # training iterations before its end
    queued_ns: int | None


class RunTimes:
    """Adds up one rank's run. live: capture goes on. thread: the ident of the loop's. sampling: how to sample it now.

    trend: told each training step and where it was sampled.

    `boundary`, `resumed`, `passed`, `workers_start` and `batch_given` are called on the loop's thread; samples come
    from another one.
    """

    def __init__(
        self,
        tracker: Tracker,
        live: Callable[[], bool],
        thread: Callable[[], int],
        sampling: Callable[[], Sampling],
        trend: StepTrend,
    ) -> None:
        self.tracker = tracker
        self.trend = trend
        self.sampler = Sampler(live, thread, self._taken, sampling)
        self.home = Home(self.sampler.codes)
        self.loop = 0  # the number of the training loop that the last backward pass was in
        self.moved_at: list[int] = []  # iterations before each move to another
        self.told = 0  # that when it was last asked for
        self.reading = False  # the script's text was read for it in the step that runs
        self.passes = ForwardPasses()
        self.totals = Totals()
        self.ours_ns = 0
        self.before_us: float | None = None  # age of the process when this began
        self.last_ns = 0  # the last boundary
        self.limit_ns = 0.0  # an ordinary step is no longer; 0 while that is not known
        self.recent: list[int] = []
        self.waiting: list[Stretch] = []  # steps until then
        self.queued_ns: int | None = None  # for how long the thread had no core when a stretch was last looked at
        self.pending: list[Sample] = []  # samples of the stretch that runs
        self.fresh = False
        self.restarts = 0
        self.started_ns = 0  # of these iterators: from when each is made to when it is asked for its first batch
        self.first_batch_ns = 0  # and from then to that batch
        self.making_ns = self.asked_ns = 0  # since when one is made, or asked; 0 while none is
        self.step: Stack = ()  # the way to a backward pass; looked at again after a stretch with samples
        self.wants_step = True
        self.places: dict[Any, Place] = {}
        self.reader: tuple[int, Place] | None = None  # the last iterator that was asked for its first batch, and where
        self.untrained: dict[Place, None] = {}  # where those were asked that nothing was trained on

    def start(self, age_us: float | None) -> None:
        """Begins, in a process of that age."""
        self.before_us = age_us
        self.last_ns = perf_counter_ns()
        self.queued_ns = self.trend.read_queued_ns()
        self.sampler.start()

    # -- on the loop's thread

    def boundary(self, now_ns: int, trained: bool, ours: bool) -> None:
        """A stretch ends. trained: with a training step in it. ours: our profiler was at work."""
        length, self.last_ns = now_ns - self.last_ns, now_ns
        if trained and not ours:
            if self.pending and (not self.limit_ns or length <= _FAR * self.limit_ns):
                self.trend.sampled(self._marked(sample)[0] for sample in self.pending)
            closed = self.trend.closed
            self.trend.step(length, self.tracker.count)
            self.wants_step |= self.trend.closed != closed
        if trained and length <= self.limit_ns and not self.pending and not ours:
            self.totals.spent_ns[STEP] += length
            self.totals.count[STEP] += 1
        else:
            self._sort_in(length, trained, ours)
        if trained and not ours and self.limit_ns:
            self.recent.append(length)
            if len(self.recent) == _RECENT:
                self.limit_ns = _LONG * median_low(self.recent)
                self.recent = []

    def resumed(self, now_ns: int) -> None:
        """Our own work at a boundary is done: the next stretch begins."""
        if now_ns - self.last_ns >= _SHORT_NS:
            self.queued_ns = self.trend.read_queued_ns()  # what that work waited is no step's
        self.ours_ns += now_ns - self.last_ns
        self.last_ns = now_ns

    def passed(self) -> None:
        """A backward pass begins."""
        if self.wants_step:
            self.wants_step = False
            self.step, _ = self.sampler.walk(sys._getframe(1))
            compared = self.home.compared
            if self.home.left(self.step):
                self.loop += 1
                self.moved_at = [*self.moved_at, self.tracker.count][-_MOST_LOOPS:]
            self.reading |= self.home.compared != compared

    def moved(self) -> bool:
        """Whether training has moved to another loop since this was asked last."""
        told, self.told = self.told, self.loop
        return told != self.loop

    def iterator_begins(self, serial: int) -> None:
        """An iterator is asked for its first batch: where that is, an evaluation stands if nothing trains on it."""
        if self.making_ns:
            self.asked_ns = perf_counter_ns()
            self.started_ns += self.asked_ns - self.making_ns
            self.making_ns = 0
        if (
            self.reader is not None
            and self.reader[0] not in self.tracker.trained
            and len(self.untrained) < _MOST_READERS
        ):
            self.untrained[self.reader[1]] = None
        stack, _ = self.sampler.walk(sys._getframe(1))
        self.reader = (serial, self._place(stack)) if self.step else None

    def workers_start(self) -> None:
        """An iterator starts workers of its own."""
        self.fresh = True
        self.restarts += self.totals.count[START]
        self.making_ns = perf_counter_ns() if self.totals.count[START] else 0

    def batch_given(self) -> None:
        """An iterator has given a batch."""
        self.fresh = False
        if self.asked_ns:
            self.first_batch_ns += perf_counter_ns() - self.asked_ns
            self.asked_ns = 0

    def _sort_in(self, length: int, trained: bool, ours: bool) -> None:
        stretch = Stretch(length, self.pending, self.tracker.count, self._queued(length))
        self.pending = []
        self.wants_step = True
        if ours:
            self.ours_ns += length
        elif not self.totals.count[START]:
            self._add(self.totals, START, stretch)
        elif not trained:
            self._add(self.totals, BETWEEN, stretch)
        elif self.limit_ns:
            self._add_step(self.totals, self.limit_ns, stretch)
        else:
            self.waiting.append(stretch)
            if len(self.waiting) == _FIRST:
                self.limit_ns = self._settle(self.totals)
                self.waiting = []

    def _queued(self, length: int) -> int | None:
        """For how long the thread had no core in the stretch that ends, at most; the rest went to those before it.

        Reading takes some ten microseconds: it is left out at the ends of ordinary steps and of short stretches, which
        those before it are, then.
        """
        if length < _SHORT_NS:
            return None
        before, self.queued_ns = self.queued_ns, self.trend.read_queued_ns()
        if before is None or self.queued_ns is None:
            return None
        since = self.queued_ns - before
        self.totals.queued_ns[STEP] = self.totals.queued_ns.get(STEP, 0) + max(since - length, 0)
        return min(since, length)

    def _settle(self, totals: Totals) -> float:
        """The first steps tell how long an ordinary one is at most."""
        limit_ns = _LONG * median_low([stretch.length_ns for stretch in self.waiting])
        for stretch in self.waiting:
            self._add_step(totals, limit_ns, stretch)
        return limit_ns

    def _add_step(self, totals: Totals, limit_ns: float, stretch: Stretch) -> None:
        is_long = stretch.length_ns > limit_ns
        self._add(totals, LONG if is_long else STEP, stretch)
        if is_long:
            totals.usual_ns += limit_ns / _LONG

    def _add(self, totals: Totals, kind: str, stretch: Stretch) -> None:
        totals.add(kind, stretch.length_ns, map(self._marked, stretch.samples), stretch.iteration)
        if stretch.queued_ns is not None:
            totals.queued_ns[kind] = totals.queued_ns.get(kind, 0) + stretch.queued_ns

    def _marked(self, sample: Sample) -> tuple[Place, tuple[str, ...]]:
        """The place and the marks of a sample, now that the stretch in which it lies is over."""
        where, evaluated, serial, turned, fresh = sample
        place = where if isinstance(where, Place) else self._place(where)
        marks = [*place.marks]
        marks += ["eval_mode"] * bool(evaluated)
        marks += ["also_trained"] * (evaluated in self.sampler.trained)
        marks += ["untrained"] * (serial != 0 and serial not in self.tracker.trained)
        marks += ["epoch_end"] * turned
        marks += ["first_batch"] * (fresh and FETCH in place.marks)
        marks += [WORKERS] * (fresh and ITERATOR in place.marks)
        return place, tuple(marks)

    # -- on the sampler's thread

    def _taken(self, stack: Stack, runs: Passing) -> None:
        if not stack:
            return
        self.passes.add(runs)
        tracker, where = self.tracker, self._place(stack) if self.step else stack
        segment = tracker.segment
        yielded = segment.yielded if segment is not None and not segment.backward else ()
        # Asked for a batch, and gone on without one: the iterator was exhausted.
        over = tracker.asking if isinstance(where, Place) and FETCH not in where.marks else 0
        turned = over in tracker.trained or tracker.turned_at == tracker.count
        serial = yielded[-1] if yielded and not over else 0
        if len(self.pending) >= _MOST_SAMPLES:
            del self.pending[::2]
        self.pending.append((where, runs.evaluated, serial, turned, self.fresh))

    def _place(self, stack: Stack) -> Place:
        place = Place(self.sampler.codes, stack, self.step)
        return self.places.setdefault(place.key(), place) if len(self.places) < MOST_PLACES else place

    # -- what is left behind

    def record(self) -> dict[str, Any] | None:
        """The part of run.json; None where no training step was seen. The run may go on."""
        if not self.totals.count[START]:
            return None
        totals, trees = self.totals.copy(), Trees()
        if self.waiting:
            self._settle(totals)
        self._add(totals, END, Stretch(perf_counter_ns() - self.last_ns, [*self.pending], self.tracker.count, None))
        totals.note(BETWEEN, ((place, (*place.marks, FETCH, "untrained")) for place in self.untrained))
        return {
            "before_us": self.before_us,
            "ours_us": self.ours_ns / 1e3,
            **totals.record(trees),
            "sampled": self.sampler.count,
            "sampling_us": self.sampler.spent_ns / 1e3,
            "epochs": self.tracker.turns,
            "moved_at": self.moved_at,
            "restarts": self.restarts,
            "workers_us": self.started_ns / 1e3,
            "first_batches_us": self.first_batch_ns / 1e3,
            "trend": self.trend.record(),
            "passes": self.passes.record(self.sampler.codes, self.step, trees),
        }
