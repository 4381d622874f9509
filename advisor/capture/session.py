"""One process's capture: listens to the loop, drives the phases, and writes this rank's part of run.json.

Imported only after the script has imported torch. Every listener ends at once in a process that the script forks, on
threads other than the loop's, and after anything of ours has failed.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import torch

from . import hooks, probe
from .collector import Collector
from .exits import Exits
from .phases import AFTER, DONE, LINES, RECORD, TIMING, Phases, plan
from .timewindow import TimeWindow
from .tracker import Tracker
from .window import Window

# Backward passes without a step source after which none is expected: a loop that updates its weights by hand.
_UNSETTLED = 8


def arm(settings: dict[str, Any], role: str) -> None:
    """Installs the hooks: at once in a rank; in any other process when it joins a process group."""
    hooks.hide_from_dynamo()
    session = Session(settings)
    if role == "rank":
        session.begin()
        # The named script without a step: even a time window is better than nothing.
        session.time_window.watch()
    else:
        hooks.watch_groups(session.begin)


class Session:
    """The state of this process's capture."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.begun = False
        self.live = False
        self.thread = 0
        self.notes: list[str] = []
        self.serials = 0
        self.place: tuple[int, int] | None = None
        self.compiles = 0
        self.tracker = Tracker(self._boundary)
        self.window = Window(settings, self._file)
        self.window.finished = self._written  # type: ignore[method-assign]
        self.window.on_stop = self._look
        self.phases: Phases | None = None
        self.collector = Collector()
        self.facts: dict[str, Any] = {}
        self.known: int | None = None
        self.time_window = TimeWindow(self._without_steps, self._open_time_window, self._close_time_window)
        self.initial = probe.switches()

    def begin(self) -> None:
        """Starts to listen; once."""
        if self.begun or not self._wanted():
            return
        self.begun = self.live = True
        hooks.watch_loaders(self._asked, self._given)
        hooks.watch_backward(self._backward)
        hooks.watch_optimizers(self._stepped, self._stepping)
        hooks.watch_profilers(self._user_stepped, self._profiler_began, self._profiler_ended)
        hooks.in_children(self._forget)
        self.collector.install()
        self.exits = Exits(self.end)
        atexit.register(self.end)

    def _wanted(self) -> bool:
        chosen = self.settings.get("rank")
        return chosen is None or self.rank() in chosen

    def rank(self) -> int:
        """This process's rank: of the process group, else of the launcher's environment, else 0."""
        return self._place()[0]

    def world_size(self) -> int:
        """Processes in the job."""
        return self._place()[1]

    def _place(self) -> tuple[int, int]:
        """(rank, world size); what the process group said holds after the script has left it."""
        group = torch.distributed
        if group.is_available() and group.is_initialized():
            self.place = (int(group.get_rank()), int(group.get_world_size()))
        if self.place is None:
            known = os.environ
            rank = known.get("RANK") or known.get("SLURM_PROCID") or known.get("OMPI_COMM_WORLD_RANK") or 0
            size = known.get("WORLD_SIZE") or known.get("SLURM_NTASKS") or known.get("OMPI_COMM_WORLD_SIZE") or 1
            return int(rank), int(size)
        return self.place

    # -- listeners: each is a few attribute reads outside the window

    def _asked(self, iterator: Any, _value: Any) -> None:
        if self.live and (not self.thread or get_ident() == self.thread):
            serial = iterator.__dict__.get("_advisor")
            if serial is None:
                self.serials += 1
                serial = iterator.__dict__["_advisor"] = self.serials
                self._guard(self.collector.loader, iterator)
            self._guard(self.tracker.asked, serial)

    def _given(self, iterator: Any, count: int) -> None:
        if not count:
            if self.live:
                self.collector.made(iterator)
        elif self.live and (not self.thread or get_ident() == self.thread):
            serial = iterator.__dict__.get("_advisor")
            if serial is not None:
                self._guard(self.tracker.given, serial)
                self.collector.batch_ready()

    def _backward(self) -> None:
        if self.live:
            if not self.thread:
                self.thread = get_ident()
            if get_ident() == self.thread:
                self._guard(self.tracker.backward)

    def _stepping(self) -> None:
        if self.live and (not self.thread or get_ident() == self.thread):
            self.tracker.stepping_begins()

    def _stepped(self, optimizer: Any) -> None:
        if self.live and (not self.thread or get_ident() == self.thread):
            key = id(optimizer)
            if key not in self.collector.optimizers:
                self._guard(self.collector.optimizer, optimizer)
            if self.tracker.source in ("", "optimizer") and hooks.inside_backward():
                self.tracker.stepped_inside()
            else:
                self._guard(self.tracker.stepped, key)

    def _user_stepped(self, profiler: Any, number: int) -> None:
        if number and self.live and (not self.thread or get_ident() == self.thread):
            self._guard(self.tracker.user_stepped)

    def _profiler_began(self) -> None:
        if self.live and not self.window.changing:
            self.window.theirs = True
            self._guard(self._give_way)

    def _give_way(self) -> None:
        if self.window.role == "window":
            self.window.discard()
        if self.phases is not None and self.phases.interrupt(again=True):
            self.notes.append("the script started a profiler of its own inside our window, which was closed early")
        self.window.profiler = None

    def _profiler_ended(self) -> None:
        if not self.window.changing:
            self.window.theirs = False

    def _forget(self) -> None:
        """In a forked child: nothing of this is its business."""
        self.live = False
        self.begun = True
        self.collector.in_child()

    def _guard(self, call: Callable[..., Any], *args: Any) -> None:
        """Calls; what fails ends capture, never the script. SystemExit and KeyboardInterrupt pass."""
        try:
            call(*args)
        except Exception as failure:
            self.fail(failure)

    def fail(self, failure: Exception) -> None:
        """Gives up: notes why, writes what there is."""
        self.live = False
        self.notes.append(f"capture ended early: {type(failure).__name__}: {failure}")
        self.window.discard()
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
        expected = self.tracker.backwards and self.tracker.backwards < _UNSETTLED
        if self._without_steps() and not expected and not self.thread_elsewhere():
            self._guard(self._start_time_window)
        return True

    def _start_time_window(self) -> None:
        if self.window.prepare() and self.window.start("window"):
            self.exits.watch()

    def _close_time_window(self) -> bool:
        if hooks.inside_backward():
            return False
        if self.live and self.window.recording and self.window.role == "window":
            self._guard(self._keep_time_window)
        return True

    def _keep_time_window(self) -> None:
        self.exits.release()
        self.window.stop({}, partial=False)
        self._write()

    def thread_elsewhere(self) -> bool:
        """The loop runs on another thread than the main one, which is where a time window would look."""
        return bool(self.thread) and self.thread != get_ident()

    # -- the phases

    def _boundary(self, now_ns: int, trained: bool, clean: bool) -> None:
        if self.phases is None:
            self.window.forget()
            self.facts.clear()
            self.exits.release()
            known = self._known_length()
            self.phases = Phases(self.window, plan(self.settings, known, self.world_size()))
            self.phases.left -= self.tracker.count
            self.facts["clock"] = "host"
        before = self.phases.phase
        self.collector.timed = before in (TIMING, AFTER)
        self.phases.boundary(now_ns, trained, clean, self.tracker.count - 1)
        after = self.phases.phase
        if after != before:
            self._entered(after)
        if after == AFTER and before != AFTER and self.settings.get("stop"):
            self.end()
            raise SystemExit(0)

    def _known_length(self) -> int | None:
        """Iterations of the epoch that the loop is in; None where the loader does not know."""
        segment = self.tracker.segment
        if segment is None or self.tracker.source != "loader":
            return None
        length = self.collector.lengths.get(segment.opener)
        return length // self.tracker.batches if length is not None else None

    def _entered(self, phase: int) -> None:
        self.collector.timed = phase in (TIMING, AFTER)  # both give the un-profiled steps that pauses are shared among
        if phase in (RECORD, LINES):
            self.exits.watch()
        else:
            self.exits.release()
        if phase == DONE:
            self._write()

    def _look(self) -> None:
        """Reads the settings as they stand in the window; once."""
        if "settings" not in self.facts:
            self.facts.update(probe.look(self.initial, self.collector))

    def _written(self) -> None:
        """A window was closed: what is known so far goes to disk."""
        self._write()

    def end(self) -> None:
        """The script ends: an open window is kept, the record is written. Safe to call twice."""
        if not self.begun or not self.live:
            return
        self.live = False
        self.exits.release()
        try:
            if self.phases is not None:
                self.phases.interrupt()
            elif self.window.recording:
                self.window.stop({}, partial=True)
        except Exception as failure:
            self.notes.append(f"the last window was lost: {type(failure).__name__}: {failure}")
        try:
            self.tracker.finish()
            if not self.tracker.source:
                self.tracker.settle_window()
            if self.window.refused and not self.window.files:
                self.notes.append("the script's own profiler was at work, so that no window of ours could be opened")
            if self.tracker.backwards or self.window.files:
                self._look()
            self._write()
        except Exception as failure:
            self.notes.append(f"{type(failure).__name__}: {failure}")

    # -- what is left behind

    def _file(self, role: str) -> str:
        name = "trace" if role == "profile" else role
        return os.path.join(self.settings["folder"], f"{name}-rank{self.rank()}-{os.getpid()}.pt.trace.json.gz")

    def _write(self) -> None:
        """This rank's part of run.json, written aside and renamed."""
        if not (self.window.files or self.tracker.backwards or self.notes):
            return
        # Named by process alone: a rank may be known only after the first writing.
        path = os.path.join(self.settings["folder"], f"{os.getpid()}.part.json")
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(self._record(), file)
        os.replace(path + ".tmp", path)

    def _record(self) -> dict[str, Any]:
        local = os.environ.get("LOCAL_RANK")
        lines = self.window.lines
        return {
            "rank": self.rank(),
            "local_rank": int(local) if local else None,
            "world_size": self.world_size(),
            "pid": os.getpid(),
            "files": self.window.files,
            "steps": self._steps(),
            **{key: value for key, value in self.facts.items() if key != "clock"},
            **self.collector.record(self.tracker.trained),
            "notes": [*self.notes, *self.window.notes],
            "user_files": sorted(lines.files) if lines is not None else [],
            "versions": probe.versions(),
        }

    def _steps(self) -> dict[str, Any]:
        phases = self.phases
        steps: dict[str, Any] = {
            "source": self.tracker.source or "window",
            "count": self.tracker.count,
            "eval_count": self.tracker.eval_count(),
            "optimizer_steps": self.tracker.optimizer_steps,
        }
        if phases is not None:
            times, clock, mean = probe.durations(phases.before, phases.after)
            steps |= {"unprofiled_us": times, "clock": clock, "unprofiled_mean_us": mean}
            steps["profiled_us"] = [one / 1e3 for one in phases.profiled]
        return steps
