"""What the hooks of this process tell: each listener is a few attribute reads, on the loop's thread only.

Every listener ends at once in a process that the script forks, on threads other than the loop's, and after anything of
ours has failed.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Any

from .collector import Collector
from .guards import hooks
from .guards.interrupts import Interrupts, let_through
from .guards.journal import training_begins
from .steps.backward_rhythm import BackwardRhythm
from .steps.parts import BACKWARD, FETCH, OPTIMIZER, Parts
from .steps.tracker import Tracker


class Listeners:
    """Listens to loaders, backward passes, optimizers and profilers, and passes on what the tracker needs.

    live is off until `listen`, and for ever after a failure. `_boundary` and `fail` are for those who build on this.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.begun = False
        self.live = False
        self.thread = 0
        self.serials = 0
        self.tracker = Tracker(self._boundary)
        self.rhythm = BackwardRhythm(self.tracker)
        self.collector = Collector()
        self.parts = Parts()
        self.interrupts = Interrupts()
        self.placed: list[hooks.Undo] = []

    def _boundary(self, now_ns: int, trained: bool, clean: bool) -> None:
        """A boundary between two iterations of the loop."""
        raise NotImplementedError

    def _first_asked(self, serial: int) -> None:
        """An iterator is asked for its first batch."""

    def fail(self, failure: Exception) -> None:
        """Gives up; the script goes on."""
        raise NotImplementedError

    def listen(self, profiler_began: Callable[[], None], profiler_ended: Callable[[], None]) -> None:
        """Installs the hooks; once."""
        self.placed += hooks.watch_loaders(self._asked, self._given)
        self.placed += hooks.watch_backward(self._backward, self.parts.backward_ends_ns)
        self.placed += hooks.watch_optimizers(self._stepped, self._stepping)
        self.placed += hooks.watch_profilers(self._user_stepped, profiler_began, profiler_ended)
        self.placed += hooks.in_children(self._forget)

    def _asked(self, iterator: Any, _value: Any) -> None:
        if self.live and (not self.thread or get_ident() == self.thread):
            serial = iterator.__dict__.get("_advisor")
            if serial is None:
                self.serials += 1
                serial = iterator.__dict__["_advisor"] = self.serials
                self._guard(self.collector.loader, iterator)
                self._guard(self._first_asked, serial)
            self._guard(self.tracker.asked, serial)
            if self.parts.on:
                self.parts.begin(FETCH)

    def _given(self, iterator: Any, count: int) -> None:
        if not count:
            if self.live:
                self.collector.made(iterator)
        elif self.live and (not self.thread or get_ident() == self.thread):
            serial = iterator.__dict__.get("_advisor")
            if serial is not None:
                if self.parts.on:
                    self.parts.end()
                self._guard(self.tracker.given, serial)
                self.collector.batch_ready()

    def _backward(self) -> bool:
        """True: its end is of interest."""
        if self.live:
            if not self.thread:
                self.thread = get_ident()
                self._guard(training_begins, self.settings)
            if get_ident() == self.thread:
                self._guard(self.tracker.backward)
                self._guard(self.rhythm.passed)
                if self.parts.on:
                    self.parts.begin(BACKWARD)
                    return True
        return False

    def _stepping(self) -> None:
        if self.live and (not self.thread or get_ident() == self.thread):
            self.tracker.stepping_begins()
            if self.parts.on:
                self.parts.begin(OPTIMIZER)

    def _stepped(self, optimizer: Any) -> None:
        if self.live and (not self.thread or get_ident() == self.thread):
            if self.parts.on:
                self.parts.end()
            self._guard(self._counted, optimizer)

    def _counted(self, optimizer: Any) -> None:
        key = self.collector.optimizer(optimizer)
        if self.tracker.source in ("", "optimizer", "backward") and hooks.inside_backward():
            self.tracker.stepped_inside()
        else:
            self.tracker.stepped(key)

    def _user_stepped(self, profiler: Any, number: int) -> None:
        if number and self.live and (not self.thread or get_ident() == self.thread):
            self._guard(self.tracker.user_stepped)

    def _forget(self) -> None:
        """In a forked child: nothing of this is its business."""
        self.live = False
        self.begun = True
        self.collector.in_child()

    def _guard(self, call: Callable[..., Any], *args: Any) -> None:
        """Calls; what fails ends capture, never the script. SystemExit, KeyboardInterrupt and what a handler of the
        script's raised pass.
        """
        try:
            call(*args)
        except Exception as failure:
            let_through(failure)  # it ends the script's step as well, which counts as broken off
            self.fail(failure)
        finally:
            if self.interrupts.placed:
                self.interrupts.release()
