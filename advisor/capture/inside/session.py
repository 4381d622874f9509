"""One process's capture: whether it is a rank, from when to when it is recorded, and its part of run.json.

Imported only after the script has imported torch.
"""

from __future__ import annotations

import atexit
import sys
from _thread import get_ident
from typing import Any

from . import rank_record, unranked_child
from .facts import out_of_memory
from .facts.data.batch_padding import BatchPadding
from .facts.model.evaluation_graphs import EvaluationGraphs
from .facts.probe import attempt
from .facts.source import setting_lines
from .guards import hooks
from .guards.signals import Exits, when_worker_ends
from .process_role import is_fork_server
from .recorded_windows import RecordedWindows
from .steps.phases import AFTER
from .steps.vitals import age_us


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


class Session(RecordedWindows):
    """The state of this process's capture."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.ran_out: dict[str, Any] | None = None
        self.alone = unranked_child.UnrankedChild(settings)
        self.padding = BatchPadding()
        self.evaluations = EvaluationGraphs()

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
                "this rank was forked from a process that had already been profiled, and torch's profiler does not "
                "survive a fork: start ranks with torchrun or spawn"
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
            self._guard(self._confirm)
        if self.live and get_ident() == self.thread:
            self._guard(self.window.passed)
            self._guard(self.collector.look_at_tracer)
        return super()._backward()

    def _first_asked(self, serial: int) -> None:
        self.run.iterator_begins(serial)

    def _stepping(self) -> None:
        super()._stepping()
        self._check_size("stepping")

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
        if self.live and get_ident() == self.thread:
            self._guard(self.collector.look_at_tracer)
        if count:
            self.run.batch_given()
            self._check_size("fetched")
            if self.window.recording:
                self.window.fetched()
            elif self.evaluations.wants(count) and self._is_evaluation(iterator):
                self.evaluations.look(iterator, iterator.__dict__["_advisor"])
            elif self.padding.left and self.phases is not None and self.phases.phase == AFTER:
                self._look_at_batch(iterator)
        if not count and self.live:
            # Before its own part of the iterator is made: workers that are kept are not started again.
            if getattr(iterator, "_num_workers", 0) and "_workers" not in vars(iterator):
                self.run.workers_start()
            self._look_at_held()

    def _is_evaluation(self, iterator: Any) -> bool:
        """Whether the loop's thread reads batches on which nothing was trained so far, though training goes on."""
        serial = iterator.__dict__.get("_advisor")
        mine = self.live and get_ident() == self.thread and serial is not None
        return mine and bool(self.tracker.trained) and serial not in self.tracker.trained

    def _look_at_batch(self, iterator: Any) -> None:
        if self.live and get_ident() == self.thread and iterator.__dict__.get("_advisor") in self.tracker.trained:
            self.padding.look(iterator)

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

    def end(self) -> None:
        """The script ends: an open window is kept, the record is written. Safe to call twice."""
        if not self.begun or not self.live:
            return
        self.live = False
        self.exits.release()
        self.requests.release()
        if not self.settings.get("hosted"):  # an exception of an earlier cell ended nothing
            optimizers = self.collector.all_optimizers()
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
            if (self.tracker.backwards or self.window.files) and self.loop is self.first_loop:
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

    def _write(self) -> None:
        if self.window.files or self.tracker.backwards or self.notes or self.ran_out:
            rank_record.write(self.settings["folder"], rank_record.record(self))
