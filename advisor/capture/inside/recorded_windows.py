"""Which windows of a process are recorded: those of its phases, later ones, or one of time where no step is told."""

from __future__ import annotations

import os
import sys
import threading
from _thread import get_ident
from time import perf_counter_ns
from typing import Any

from .facts import compiler
from .facts.process_facts import Facts
from .facts.rank_identity import RankIdentity
from .guards import hooks
from .guards.signals import Exits
from .guards.thread_end import ThreadEnd
from .listeners import Listeners
from .loop_facts import LoopFacts, Seen
from .steps.backward_rhythm import PASSES
from .steps.clock import Clock
from .steps.phases import AFTER, DONE, LINES, OBSERVED, READY, RECORD, TIMING, WARM, Phases
from .steps.plan import Plan, plan
from .steps.requests import Requests
from .steps.run_times import RunTimes
from .steps.stack_samples import Sampling
from .steps.step_trend import StepTrend
from .steps.time_window import TimeWindow
from .steps.vitals import Vitals, queued_ns, resident
from .windows.later import Later, Recording
from .windows.window import Window

GAVE_WAY = "the script started its own profiler inside the profiled window, which was closed early"
# Phases in which a profiler of ours is at work, or about to be.
_OURS = (READY, RECORD, LINES, OBSERVED)
# Steps of a loop that ends before the window that is planned where nothing is known of it, but holds a shorter one.
_SHORT_LOOPS = range(11, 48)
# Loops in place of which a later one is recorded, as they were over before their window: a script that enters one short
# loop after another (stages of a curriculum) is to have a window at all.
_MOST_MOVES = 2


class RecordedWindows(Listeners):
    """Opens and closes windows at the boundaries between steps, and gives way to the script's own profiler.

    `end` and `_write` are for those who build on this.
    """

    exits: Exits

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.forked = False  # the hooks of a forked process are those of its parent
        self.notes: list[str] = []
        self.passes_kept = 0  # backward passes before the end of the last window of time
        self.look_at = 0  # the step at which tensors that rested are looked at again; 0: none so far
        self.place = RankIdentity()
        self.facts = Facts(self.collector, self.tracker)
        self.loop = LoopFacts(self.collector, self.tracker, self.facts, Vitals())
        self.loop_number = 0
        self.seen = Seen(self.tracker, self.collector)  # when a backward pass was last known to be of this loop
        self.entered: Seen | None = None  # when one was first known to be of the next one
        self.moves = 0  # to loops that were recorded in place of an earlier one
        self.clock = Clock(self.facts.device)
        self.window = Window(settings, self._file, self.clock)
        self.window.on_finished = self._write
        self.window.on_stop = self._look
        self.window.on_timed = self._timed
        self.window.modules, self.window.text = self.facts.modules, self.collector.setting_lines.text
        self.phases: Phases | None = None
        self.first: Recording | None = None
        self.first_loop = self.loop
        self.loop.told = True
        self.time_window = TimeWindow(
            self._without_steps, self._open_time_window, self._close_time_window, self._time_window_full
        )
        self.end_choices = self.end_watch = _nothing
        self.thread_end = ThreadEnd(self._thread_ends)
        trend = StepTrend(queued_ns, resident)
        self.run = RunTimes(self.tracker, lambda: self.live, self._loop_thread, self._sampling, trend)
        self.requests = Requests(settings, trend, self.run.moved)
        self.later = Later(settings, self.requests, self.facts.device, self.parts.cut, queued_ns)

    def end(self) -> None:
        """The script ends: what is open is kept, and the record written."""
        raise NotImplementedError

    def _write(self) -> None:
        """Has the record written as far as it is known."""
        raise NotImplementedError

    def _timed(self) -> None:
        """The un-profiled steps before a window are over."""
        if self.later.first is None or self.later.own:
            self.loop.vitals.timing_ends(self.tracker.count)

    def _loop_thread(self) -> int:
        return self.thread or threading.main_thread().ident or 0

    def _sampling(self) -> Sampling:
        """While a profiler of ours is at work, what stands on the stack is no picture of the run."""
        if self.window.recording or (self.phases is not None and self.phases.phase in _OURS):
            return "paused"
        return "asks" if self.phases is not None and self.phases.phase in (AFTER, DONE) else "waits"

    def _check_size(self, place: str) -> None:
        """At a place inside of a step: its window is closed where this step alone fills it."""
        if not self.live or get_ident() != self.thread or self.phases is None:
            return
        if self.window.recording:
            self._guard(self._close_overflow, place)
        elif self.window.costs.growth.first and not hooks.inside_backward(place == "backward"):
            self.window.costs.growth.passes(place)

    def _close_overflow(self, place: str) -> None:
        if self.window.overflows(place) and not hooks.inside_backward(place == "backward") and self.phases is not None:
            self.window.overflowed()
            self.phases.interrupt()

    def _profiler_began(self) -> None:
        if self.live and not self.window.changing:
            self.window.theirs = True
            self._guard(self._give_way)

    def _give_way(self) -> None:
        if self.window.role == "window":
            self.window.discard()
        if self.phases is not None and self.phases.interrupt(again=True):
            self.notes.append(GAVE_WAY)
        self.window.profiler = None

    def _profiler_ended(self) -> None:
        if not self.window.changing:
            self.window.theirs = False

    # -- a window of time

    def _without_steps(self) -> bool:
        """Steps cannot be told so far. A process whose children do the work (mp.spawn) is not profiled for waiting."""
        children = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
        return self.live and not self.tracker.source and not children

    def _open_time_window(self) -> bool:
        """False where it must be asked again: a profiler that starts inside a backward is lost when that ends."""
        if hooks.inside_backward():
            return False
        expected = self.tracker.backwards and self.tracker.backwards < PASSES
        # Where the loop runs on another thread, the main one has nothing to show.
        elsewhere = self.thread and self.thread != get_ident()
        if self._without_steps() and not expected and not elsewhere:
            self._guard(self._start_time_window)
        return True

    def _time_window_full(self) -> bool:
        """The time window holds what may be recorded."""
        return self.window.recording and self.window.full()

    def _start_time_window(self) -> None:
        if self.window.prepare() and self.window.start("window"):
            self.exits.watch()
            # A profiler that records while collectives are compiled ends the process (torch 2.15).
            self.end_watch = compiler.before_each(self._close_time_window)

    def _close_time_window(self) -> bool:
        if hooks.inside_backward():
            return False
        if self.live and self.window.recording and self.window.role == "window":
            self._guard(self._keep_time_window)
        return True

    def _keep_time_window(self) -> None:
        self.end_watch()
        self.exits.release()
        self.facts.forget()  # a window before it may have seen a script that was still setting up
        self.window.stop({}, partial=False)
        self.passes_kept = self.tracker.backwards
        if self.window.files:
            self._write()
        else:
            self.facts.forget()  # nothing was computed while this window was open

    # -- the phases

    def _boundary(self, now_ns: int, trained: bool, clean: bool) -> None:
        phases = self.phases or self._begin_phases()
        self.facts.boundary()
        before, first = phases.phase, self.later.first is None
        self.run.boundary(now_ns, trained, before in _OURS)
        moves = self.run.loop != self.loop_number
        self.interrupts.hold(moves or phases.at_length(now_ns))
        clean, self.run.reading = clean and not moves and not self.run.reading, False
        if moves:
            self._moves(phases)
        own = first or self.later.own
        if own:
            self.loop.vitals.boundary(phases.phase, phases.left, self.tracker.count)
        if before == WARM and first and self.tracker.turns + 1 < self.settings.get("at_epoch", 0):
            phases.left = max(phases.left, phases.plan.warmup, 2)
        self.collector.timed = own and phases.phase in (TIMING, AFTER)
        # The step that lies in two loops warms up neither.
        phases.boundary(now_ns, trained and not (moves and phases.phase == WARM), clean, self.tracker.count - 1)
        after = phases.phase
        if after != before:
            self._entered(after)
        if not first and after in (AFTER, DONE):
            self._close_later()
        elif after in (AFTER, DONE) and trained and clean:
            self._open_later(now_ns)
        self.run.wants_step |= after != DONE  # so that each timed step is known to be of this loop
        if self.look_at and self.tracker.count >= self.look_at:
            self.look_at *= 2
            self._look_at_held()
        self.run.resumed(perf_counter_ns())
        over = after in (AFTER, DONE) and before not in (AFTER, DONE)
        if over and first and self.settings.get("stop"):
            self.end()
            raise SystemExit(0)

    def _begin_phases(self) -> Phases:
        self.end_choices()  # a loop that runs has chosen; and the watch costs a little time in each call into torch
        self.window.forget()
        self.end_watch()
        self.facts.forget()
        self.exits.release()
        phases = self.phases = Phases(self.window, self._planned(), self.parts.cut, queued_ns)
        self.first = Recording(phases, self.window, self.clock)
        phases.left -= self.tracker.count
        self.window.costs.budget.ranks = self.place.on_this_machine()
        return phases

    def _planned(self) -> Plan:
        known, moves = self._known_length(), [0, *self.run.moved_at]
        if known is None and len(moves) > 1 and moves[-1] - moves[-2] in _SHORT_LOOPS:
            known = moves[-1] - moves[-2]  # this one may be as short as the one before
        return plan(self.settings, known, self.place.world_size())

    def _confirm(self) -> None:
        """A backward pass begins, and its loop is known."""
        if self.run.loop == self.loop_number:
            self.seen = Seen(self.tracker, self.collector)
        elif self.entered is None:
            self.entered = Seen(self.tracker, self.collector)

    def _moves(self, phases: Phases) -> None:
        """Training is in another loop from this boundary on."""
        self.loop_number, fresh = self.run.loop, self.later.first is None and not self._is_recorded()
        self.parts.cut()
        late = self.settings.get("at_step") or self.settings.get("at_epoch")
        again = self.place.world_size() == 1 and not late and self.moves < _MOST_MOVES
        before = phases.phase
        left, now = self.loop, set(self.collector.optimizers) - self.seen.optimizers
        aside = {key: self.collector.optimizers.pop(key) for key in now}  # none of the loop that is left
        phases.leaves(self._planned() if again else None)
        self.collector.optimizers |= aside
        left.leave(self.seen)
        self.collector.begin_again(self.seen.optimizers)
        self.seen, self.entered = self.entered or Seen(self.tracker, self.collector), None
        self._begin_loop(left)
        if phases.phase == WARM:
            self.moves += before != WARM
            self.clock.begin_again()
        if phases.phase not in (AFTER, DONE):
            self.run.moved()  # this window is one of that loop
            self.window.modules = self.facts.modules
            self.later.moves_to(self.tracker.count, self.loop)
            if phases.phase == TIMING:
                self.loop.vitals.begin(self.tracker.count)
        if fresh and phases.phase != DONE:
            self.first_loop = self.loop
            self.loop.told = True

    def _is_recorded(self) -> bool:
        """Whether a window of steps was recorded."""
        return any(file["role"] == "profile" for file in self.window.files)

    def _begin_loop(self, left: LoopFacts) -> None:
        """Facts of the loop that training has moved to."""
        facts = Facts(self.collector, self.tracker)
        facts.initial, facts.marks = left.facts.initial, left.facts.marks
        vitals = Vitals(left.vitals.of_numpy)
        vitals.first_step_us = left.vitals.first_step_us
        self.facts, self.loop = facts, LoopFacts(self.collector, self.tracker, facts, vitals, self.seen)

    def _open_later(self, now_ns: int) -> None:
        if self.phases is not None and self.later.first is None:
            first = Recording(self.phases, self.window, self.clock)
            if self.later.due(first, self.tracker.count, now_ns):
                self._go_on_with(self.later.make(first, self._file, self.loop, self._planned()))
                self.window.on_stop, self.window.modules = self._look, self.facts.modules
                self.window.on_timed = self._timed

    def _close_later(self) -> None:
        if self.phases is not None:
            self._go_on_with(self.later.keep(Recording(self.phases, self.window, self.clock)))
            self._entered(self.phases.phase)
            self._write()

    def _go_on_with(self, recording: Recording) -> None:
        self.phases, self.window, self.clock = recording.phases, recording.window, recording.clock

    def _known_length(self) -> int | None:
        """Iterations of the epoch that the loop is in; None where the loader does not know."""
        segment = self.tracker.segment
        if segment is None or self.tracker.source != "loader":
            return None
        length = self.collector.lengths.get(segment.opener)
        return length // self.tracker.batches if length is not None else None

    def _entered(self, phase: int) -> None:
        # Both give the un-profiled steps that pauses are shared among.
        self.collector.timed = (self.later.first is None or self.later.own) and phase in (TIMING, AFTER)
        self.parts.on = phase in (TIMING, RECORD, AFTER) and self.clock.host_alone
        if phase in (RECORD, LINES, OBSERVED):
            self.exits.watch()
            if get_ident() != threading.main_thread().ident:
                self.thread_end.watch()
        else:
            self.exits.release()
        if phase in (AFTER, DONE) and self.later.first is None and not self.requests.begun:
            # A loader's iterators tell of its epochs.
            self.look_at = 0 if self.tracker.source == "loader" else 2 * self.tracker.count
            self.requests.begin(self.tracker.count, self.place.world_size() == 1)
            if self.window.costs.without_lines():
                self.run.sampler.look_closer()
        if phase == READY and (self.later.first is None or self.later.own) and self.window.costs.budget.affords_walk():
            with self.window.costs.budget.spending():
                self.facts.window_opens()
        if phase == DONE:
            self._write()

    def _look_at_held(self) -> None:
        optimizers = self.collector.all_optimizers()
        for window in {self.window, *([self.first.window] if self.first is not None else [])}:
            self._guard(window.observer.held.look, optimizers)

    def _look(self) -> None:
        """Reads the settings as they stand in the window; once."""
        note = self.facts.look()
        self.notes += [note] if note and note not in self.notes else []
        if self.settings.get("hosted"):  # it may have been chosen before
            settings = self.facts.known["settings"]
            settings["matmul_precision_set"] = settings["matmul_precision_set"] or None

    def _close_windows(self, phases: Phases) -> None:
        phases.interrupt()
        if self.later.first is not None:
            self._close_later()

    def _thread_ends(self) -> None:
        if self.live and self.phases is not None and not self.forked:
            self._guard(self._close_windows, self.phases)

    def _file(self, role: str) -> str:
        name = "trace" if role == "profile" else role
        ending = "gz" if role == "dataflow" else "pt.trace.json.gz"
        return os.path.join(self.settings["folder"], f"{name}-rank{self.place.rank()}-{os.getpid()}.{ending}")


def _nothing() -> None:
    """Where nothing is to be ended."""
