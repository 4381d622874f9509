"""One process's capture: drives the phases, and has this rank's part of run.json written.

Imported only after the script has imported torch.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from _thread import get_ident
from time import perf_counter_ns
from typing import Any

from . import rank_record, unranked_child
from .facts import compiler, out_of_memory, setting_lines
from .facts.batch_padding import BatchPadding
from .facts.probe import attempt
from .facts.process_facts import Facts
from .facts.rank_identity import RankIdentity
from .guards import hooks
from .guards.signals import Exits, when_worker_ends
from .guards.thread_end import ThreadEnd
from .listeners import Listeners
from .process_role import is_fork_server
from .steps.backward_rhythm import PASSES
from .steps.clock import Clock
from .steps.phases import AFTER, DONE, LINES, OBSERVED, READY, RECORD, TIMING, WARM, Phases
from .steps.plan import plan
from .steps.requests import Requests
from .steps.run_times import RunTimes
from .steps.step_trend import StepTrend
from .steps.time_window import TimeWindow
from .steps.vitals import Vitals, age_us, queued_ns, resident
from .windows.later import Later, Recording
from .windows.window import Window

# Phases in which a profiler of ours is at work, or about to be.
_OURS = (READY, RECORD, LINES, OBSERVED)


def arm(settings: dict[str, Any], role: str) -> None:
    """Installs the hooks: at once in a rank; in any other process when it joins a process group."""
    hooks.hide_from_dynamo()
    session = Session(settings)
    session.watch_choices()
    if role == "rank":
        session.begin()
        # The named script without a step: even a time window is better than nothing.
        session.time_window.watch()
    elif unranked_child.started_by_script():
        hooks.watch_backward(session.passed_alone)
    hooks.watch_groups(session.joined)


class Session(Listeners):
    """The state of this process's capture."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.notes: list[str] = []
        self.ran_out: dict[str, Any] | None = None
        self.passes_kept = 0  # backward passes before the end of the last window of time
        self.look_at = 0  # the step at which tensors that rested are looked at again; 0: none so far
        self.place = RankIdentity()
        self.alone = unranked_child.UnrankedChild(settings)
        self.vitals = Vitals()
        self.facts = Facts(self.collector, self.tracker)
        self.padding = BatchPadding()
        self.clock = Clock(self.facts.device)
        self.window = Window(settings, self._file, self.clock)
        self.window.on_finished = self._write
        self.window.on_stop = self._look
        self.window.on_timed = lambda: self.vitals.timing_ends(self.tracker.count)
        self.window.modules = self.facts.modules
        self.phases: Phases | None = None
        self.time_window = TimeWindow(
            self._without_steps, self._open_time_window, self._close_time_window, self._time_window_full
        )
        self.end_choices = self.end_watch = _nothing
        self.thread_end = ThreadEnd(self._thread_ends)
        self.forked = False
        trend = StepTrend(queued_ns, resident)
        self.run = RunTimes(self.tracker, lambda: self.live, self._loop_thread, self._recording, trend)
        self.requests = Requests(settings, trend)
        self.later = Later(settings, self.requests, self.facts.device, self.parts.cut, queued_ns)

    def watch_choices(self) -> None:
        """Notes where settings are chosen, loaders and optimizers made; before `begin`."""
        self.end_choices, placed = setting_lines.watch(self.collector.setting_lines)
        self.placed += placed

    def begin(self) -> None:
        """Starts to listen; once."""
        if self.begun or not self._wanted():
            return
        self.begun = self.live = True
        if not self.forked:  # the hooks of a forked process are those of its parent, and this object is theirs
            self.listen(self._profiler_began, self._profiler_ended)
            atexit.register(self.end)
            if is_fork_server(sys.orig_argv):  # this process was forked from it; before 3.13 such a one runs no atexit
                when_worker_ends(self.end)
        self.placed += self.collector.install()
        self.exits = Exits(self.end)
        # What a process did before a capture that began in the middle of it is no start-up.
        self.run.start(None if self.settings.get("hosted") else age_us())

    def _wanted(self) -> bool:
        chosen = self.settings.get("rank")
        return chosen is None or self.place.rank() in chosen

    def _loop_thread(self) -> int:
        return self.thread or threading.main_thread().ident or 0

    def _recording(self) -> bool:
        """A profiler of ours is at work: what stands on the stack then is no picture of the run."""
        return self.window.recording or (self.phases is not None and self.phases.phase in _OURS)

    def joined(self) -> None:
        """This process has joined a process group: it is a rank."""
        if not self.forked:
            self.begin()
        elif self.begun and not self.live:
            self._begin_in_child()

    def _begin_in_child(self) -> None:
        """A rank that was forked: everything begins anew. torch's profiler does not survive a fork once it was used."""
        used, chosen, end_choices = self.window.used, self.collector.setting_lines, self.end_choices
        self.__init__(self.settings)  # type: ignore[misc]
        self.forked, self.collector.setting_lines, self.end_choices = True, chosen, end_choices
        if used:
            self.begun = True
            self.notes.append(
                "this rank was forked from a process that had been profiled already, and torch's profiler does not "
                "survive that: start ranks with torchrun or by spawn"
            )
            self._write()
            return
        self.begin()
        when_worker_ends(self.end)

    def _backward(self) -> bool:
        if self.alone.open:
            if self.live:
                self.alone.trains()
            elif self.forked:
                self.passed_alone()
        self._check_size("backward")
        if self.run.wants_step and self.live and self.thread in (0, get_ident()):
            self._guard(self.run.passed)
        return super()._backward()

    def _first_asked(self, serial: int) -> None:
        self.run.iterator_begins(serial)

    def _stepping(self) -> None:
        super()._stepping()
        self._check_size("stepping")

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

    def passed_alone(self) -> None:
        """A backward pass begins in a process that the script started, and that joined no process group so far."""
        if not self.live and self.alone.chosen():
            self._begin_alone()

    def _begin_alone(self) -> None:
        if self.forked:
            self._begin_in_child()
        else:
            self.begin()
        self.alone.open = False
        if self.live:
            self.notes.append(unranked_child.NOTE)

    def _given(self, iterator: Any, count: int) -> None:
        super()._given(iterator, count)
        if count:
            self.run.fresh = False
            self._check_size("fetched")
            if self.window.recording:
                self.window.fetched()
            elif self.padding.left and self.phases is not None and self.phases.phase == AFTER:
                self._look_at_batch(iterator)
        if not count and self.live:
            # Before its own part of the iterator is made: workers that are kept are not started again.
            if getattr(iterator, "_num_workers", 0) and "_workers" not in vars(iterator):
                self.run.workers_start()
            self._look_at_held()

    def _look_at_held(self) -> None:
        self._guard(self.window.observer.held.look, self.collector.alive_optimizers())

    def _look_at_batch(self, iterator: Any) -> None:
        if self.live and get_ident() == self.thread and iterator.__dict__.get("_advisor") in self.tracker.trained:
            self.padding.look(iterator)

    def _profiler_began(self) -> None:
        if self.live and not self.window.changing:
            self.window.theirs = True
            self._guard(self._give_way)

    def _give_way(self) -> None:
        if self.window.role == "window":
            self.window.discard()
        if self.phases is not None and self.phases.interrupt(again=True):
            self.notes.append("the script started its own profiler inside the profiled window, which was closed early")
        self.window.profiler = None

    def _profiler_ended(self) -> None:
        if not self.window.changing:
            self.window.theirs = False

    def _forget(self) -> None:
        """In a forked child: nothing of this is its business, unless it joins a process group."""
        super()._forget()
        self.forked = True
        self.window.observer.in_child()

    def fail(self, failure: Exception) -> None:
        """Gives up: notes why, writes what there is."""
        self.live = False
        self.notes.append(f"capture ended early: {type(failure).__name__}: {failure}")
        self.window.discard()
        if self.later.first is not None:
            self._go_on_with(self.later.first)
        try:
            self._write()
        except Exception as second:
            self.notes.append(str(second))

    # -- the time window

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
        self.interrupts.hold(phases.at_length(now_ns))
        if first:
            self.vitals.boundary(before, phases.left, self.tracker.count)
        if before == WARM and first and self.tracker.turns + 1 < self.settings.get("at_epoch", 0):
            phases.left = max(phases.left, phases.plan.warmup, 2)
        self.collector.timed = first and before in (TIMING, AFTER)
        phases.boundary(now_ns, trained, clean, self.tracker.count - 1)
        after = phases.phase
        if after != before:
            self._entered(after)
        if not first and after == AFTER:
            self._close_later()
        elif after in (AFTER, DONE) and trained and clean:
            self._open_later(now_ns)
        if self.look_at and self.tracker.count >= self.look_at:
            self.look_at *= 2
            self._look_at_held()
        self.run.resumed(perf_counter_ns())
        if after == AFTER and before != AFTER and first and self.settings.get("stop"):
            self.end()
            raise SystemExit(0)

    def _begin_phases(self) -> Phases:
        self.end_choices()  # a loop that runs has chosen; and the watch costs a little time in each call into torch
        self.window.forget()
        self.end_watch()
        self.facts.forget()
        self.exits.release()
        planned = plan(self.settings, self._known_length(), self.place.world_size())
        phases = self.phases = Phases(self.window, planned, self.parts.cut, queued_ns)
        phases.left -= self.tracker.count
        self.window.costs.budget.ranks = self.place.on_this_machine()
        return phases

    # -- later windows

    def _open_later(self, now_ns: int) -> None:
        if self.phases is not None and self.later.first is None:
            first = Recording(self.phases, self.window, self.clock)
            if self.later.due(first, self.tracker.count, now_ns):
                self._go_on_with(self.later.make(first, self._file))

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
        self.collector.timed = self.later.first is None and phase in (TIMING, AFTER)
        self.parts.on = phase in (TIMING, RECORD, AFTER) and self.clock.host_alone
        if phase in (RECORD, LINES, OBSERVED):
            self.exits.watch()
            if get_ident() != threading.main_thread().ident:
                self.thread_end.watch()
        else:
            self.exits.release()
        if phase == AFTER and self.later.first is None:
            # A loader's iterators tell of its epochs.
            self.look_at = 0 if self.tracker.source == "loader" else 2 * self.tracker.count
            self.requests.begin(self.tracker.count, self.place.world_size() == 1)
        if phase == READY and self.later.first is None and self.window.costs.budget.affords_walk():
            with self.window.costs.budget.spending():
                self.facts.window_opens()
        if phase == DONE:
            self._write()

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

    def end(self) -> None:
        """The script ends: an open window is kept, the record is written. Safe to call twice."""
        if not self.begun or not self.live:
            return
        self.live = False
        self.exits.release()
        self.requests.release()
        if not self.settings.get("hosted"):  # an exception of an earlier cell ended nothing
            optimizers = self.collector.alive_optimizers()
            self.ran_out = attempt(lambda: out_of_memory.found(optimizers, self.tracker.count))
        try:
            if self.phases is not None:
                self._close_windows(self.phases)
            elif self.tracker.optimizer_steps and not self.passes_kept:
                self.window.forget()  # training had only begun: neither it nor what came before tells of its steps
            elif self.tracker.optimizer_steps and self.window.recording:
                self.window.discard()
            elif self.window.recording:
                self.window.stop({}, partial=True)
        except Exception as failure:
            self.notes.append(f"the last window was lost: {type(failure).__name__}: {failure}")
        try:
            self.tracker.finish()
            if not self.tracker.source:
                self.tracker.settle_window()
            if self.window.refused and not self.window.files:
                self.notes.append("the script's own profiler was active, so capture could not open a window")
            if self.tracker.backwards or self.window.files:
                self._look()
            self._write()
        except Exception as failure:
            self.notes.append(f"{type(failure).__name__}: {failure}")
        finally:
            self.interrupts.release()

    def leave(self) -> None:
        """Ends, and takes every hook away again: the process goes on as if capture had never been there."""
        self.end()
        self.end_choices()
        self.end_watch()
        self.collector.timed = False
        placed, self.placed = self.placed, []
        for undo in reversed(placed):
            undo()
        atexit.unregister(self.end)

    # -- what is left behind

    def _file(self, role: str) -> str:
        name = "trace" if role == "profile" else role
        ending = "gz" if role == "dataflow" else "pt.trace.json.gz"
        return os.path.join(self.settings["folder"], f"{name}-rank{self.place.rank()}-{os.getpid()}.{ending}")

    def _write(self) -> None:
        if self.window.files or self.tracker.backwards or self.notes or self.ran_out:
            rank_record.write(self.settings["folder"], rank_record.record(self))


def _nothing() -> None:
    """Where nothing is to be ended."""
