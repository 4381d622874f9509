"""Profiler sessions: one torch.profiler window for numbers, one for lines, each exported whole to a file.

Imported after the script has imported torch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

# The threading module's own may have been replaced by a library of green threads.
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import torch

from ..dataflow.observer import WITHOUT_STRIDES, Observer
from ..facts.source.script_text import ScriptText
from ..guards.hooks import Ranges
from ..guards.interrupts import let_through
from ..steps.clock import Clock
from .costs import LINES, OBSERVED, Costs
from .kineto_stderr import without_complaint
from .lines import LineRecorder
from .observing import Observing
from .profiler import SILENT, make
from .trace_file import ROW, compress, holds, uses_tensors_without_strides

# A window is not opened with less free space than this: a trace of ten steps is some tens of MB before compression.
_FREE_BYTES = 256 << 20


class Window:
    """The recorder of one rank. Every method may raise; the session turns that into a note."""

    def __init__(
        self, settings: dict[str, Any], name: Callable[[str], str], clock: Clock, costs: Costs | None = None
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.name = name
        self.profiler: Any = None
        self.role = ""
        self.recording = False
        self.thread = 0  # that the profiler was started on, and that it records
        self.changing = False  # we ourselves are calling the profiler
        self.theirs = False  # the script's own profiler is prepared or records
        self.row: Any = None
        self.lines: Any = None
        self.files: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.costs = costs or Costs()
        self.size = 0
        self.refused = False
        self.ranges = Ranges()
        self.on_stop: Callable[[], None] = lambda: None
        self.on_timed: Callable[[], None] = lambda: None
        self.on_finished: Callable[[], None] = lambda: None
        self.used = False  # the profiler was brought up in this process
        self.modules: Callable[[], dict[int, str]] = dict  # id of a module of the model -> its path
        self.text: ScriptText | None = None
        self.observer = Observer(settings["folder"], lambda: name("dataflow"))
        self.observing = Observing(self.observer, self.costs, self.notes)

    def prepare(self) -> bool:
        """Readies the profiler (its warm-up); False while the script's own profiler is at work."""
        if self.theirs or torch.autograd._profiler_enabled():
            self.refused = True
            return False
        self._check_disk()
        with self.costs.budget.spending():
            self.costs.budget.gauge()
            self.profiler = self._make("profile")
            self._quietly(self.profiler.prepare_trace)
        return True

    def start(self, role: str) -> bool:
        """Starts to record; False when the script's own profiler came in between."""
        if self.theirs or torch.autograd._profiler_enabled():
            self.profiler = None
            return False
        if not self.costs.affords_role(role):
            return False
        with self.costs.budget.spending():
            if self.profiler is None:
                self.profiler = self._make(role)
                self._quietly(self.profiler.prepare_trace)
            self.role = role
            if role == "lines":
                self._make_lines()
            self.costs.window_starts()
            self.thread = get_ident()
            self._quietly(self.profiler.start_trace)
        self.recording = True
        self.ranges.watch()
        return True

    def waits(self) -> bool:
        """Whether lines or observed steps were postponed."""
        return bool(self.costs.postponed)

    def due(self) -> str:
        """What was postponed and can be afforded by now: the longer a script runs, the more may be spent on it."""
        return self.costs.due()

    def open(self, number: int) -> None:
        """Opens the row of a step; in the lines window lines are recorded from here on."""
        if self.observer.on:
            self.observer.open(number)
            return
        self.costs.step_opens()
        self.row = torch.autograd._record_function_with_args_enter(f"{ROW}{number}")
        if self.role == "lines":
            self._start_lines()

    def close(self) -> None:
        """Closes the row of a step."""
        self.observer.close()
        if self.lines is not None:
            self.lines.stop()
        if self.row is not None:
            row, self.row = self.row, None
            torch.autograd._record_function_with_args_exit(row)
            self.costs.closed += 1

    def stop(self, rows: dict[int, int], partial: bool) -> None:
        """Stops to record and writes the trace. rows: the rows that were whole training steps -> iteration."""
        with self.costs.budget.spending():
            self._stop(rows, partial)

    def _stop(self, rows: dict[int, int], partial: bool) -> None:
        began_s = self.costs.budget.now_s()
        profiler, self.profiler, self.recording = self.profiler, None, False
        self.ranges.end()
        self._stop_trace(profiler)
        if get_ident() != self.thread:
            self.notes.append(f"the {self.role} trace was lost: its thread was still training when the process ended")
            return
        if self.role == "lines" and self.lines.cut:
            self.notes.append(
                f"the step with lines ran more than {self.lines.entered} lines: the rest was not recorded"
            )
        stopped_s = self.costs.budget.now_s() - began_s
        self.on_stop()
        if not rows and self.role == "lines":
            return
        began_s = self.costs.budget.now_s() - stopped_s
        role = "lines" if self.role == "lines" else "profile"
        path = self.name(role)
        plain = path[: -len(".gz")]
        try:
            profiler.export_chrome_trace(plain)
            if not self._larger(plain):
                return
            if role == "profile" and uses_tensors_without_strides(plain):
                self.observing.unobserved = WITHOUT_STRIDES
            count = compress(plain, path, rows)
        except OSError as failure:
            let_through(failure)
            self.notes.append(f"the {self.role} trace could not be written: {failure.strerror or failure}")
            return
        finally:
            for left in (plain, f"{plain}.tmp"):  # Kineto writes aside too, and leaves that on a full disk
                if os.path.exists(left):
                    os.unlink(left)
        if role != "lines":
            self.notes += self.costs.recorded(count, len(rows))
        self.costs.budget.written(count, self.costs.budget.now_s() - began_s)
        steps = {f"ProfilerStep#{iteration}": iteration for iteration in rows.values()}
        found = {"path": os.path.basename(path), "role": role, "steps": steps, "partial": partial}
        self.files.append(found | ({"cut": True} if role == "lines" and self.lines.cut else {}))

    def record(self) -> dict[str, Any]:
        """What its lines and its observed steps told, with keys of `record.RankRecord` and `record.LaterWindow`."""
        lines = self.lines
        return {
            "user_files": sorted(lines.files) if lines is not None else [],
            "lookups": lines.lookups if lines is not None else [],
            "masks": lines.masks.record() if lines is not None else [],
            "containers": lines.containers.record() if lines is not None else [],
            "loss_labels": lines.labels.record() if lines is not None else [],
            "dataflow": self.observer.record(),
        }

    def observe(self) -> int:
        """Begins to observe what ops read and write; for how many steps, 0 where that cannot be."""
        return self.observing.begin(self.theirs, self.compiles)

    def observed(self, whole: bool) -> None:
        """The observed steps are over; whole: each of them trained, and all of them ran."""
        self.observing.end(whole)

    def passed(self) -> None:
        """A backward pass begins."""
        if self.observer.on:
            self.observing.passed()

    def _larger(self, plain: str) -> bool:
        """Of several time windows the one with most in it is kept; a window of steps replaces them all."""
        if self.role == "window":
            size = os.path.getsize(plain)
            if size <= self.size or not holds(plain, b'"cpu_op"'):
                return False
            self.size = size
        if self.role != "lines":
            # A window that replaces an earlier one; the lines belong to either.
            self.files[:] = [one for one in self.files if one["role"] == "lines"]
        return True

    def _make_lines(self) -> None:
        self.lines = LineRecorder(self.modules(), self.text)
        self.lines.containers.read()

    def _start_lines(self) -> None:
        try:
            self.lines.start()
        except RuntimeError as failure:
            self.notes.append(f"lines were not recorded: {failure}")

    def compiles(self) -> int:
        """Graphs that torch.compile has made so far; 0 while it is not in use."""
        # The module may be half imported when a hook asks: then nothing was compiled.
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
        return int(counters["stats"]["unique_graphs"]) if counters else 0

    def too_big(self) -> bool:
        """The profiler holds more memory than it may."""
        return self.costs.too_big()

    def full(self) -> bool:
        """Whether the open window may not go on for another step."""
        return self.costs.full(self.role)

    def affords(self, steps: int) -> bool:
        """Whether one more window of so many steps may be recorded, and lines after it."""
        return self.costs.affords(steps)

    def fetched(self) -> None:
        """A batch is there: what was recorded so far of this step has no backward pass."""
        self.costs.fetched()

    def overflows(self, place: str) -> bool:
        """Whether a window is open that the step which runs fills by itself. place: in the step."""
        return self.recording and self.costs.overflows(place)

    def overflowed(self) -> None:
        """The open window is filled by the step that runs: says what that leaves out, unless lines can follow later."""
        which = "window with lines" if self.role == LINES else "window"
        said = f"a {which} was closed within a step: it runs more ops than the limit (docs/capture.md, Bounds)"
        later = self.role == LINES and self.costs.tries_lines_again()
        self._say_of(LINES, said, later)
        if not self.observer.file and not self.observer.why:
            self.observer.why = "a step runs more ops than the limit"
            self._say_of(OBSERVED, f"what ops read was not observed: {self.observer.why}", later)

    def _say_of(self, role: str, said: str, later: bool) -> None:
        """later: only where the script ends before it could be recorded after all."""
        if later:
            self.costs.postponed[role] = said
        else:
            self.notes.append(said)

    def mark(self) -> Any:
        """An event on the device; None where no device is in use: the host's clock tells."""
        self.costs.growth.timing()
        return self.clock.mark()

    def timed(self, steps: int) -> None:
        """The un-profiled phase before the window is over, with so many steps."""
        self.clock.phase_ends(steps)
        self.costs.growth.timing_ends(steps)
        self.on_timed()
        if self.settings.get("lines", True):
            with self.costs.budget.spending():
                self.costs.budget.gauge()
                self.observing.look_ahead()

    def finished(self) -> None:
        """What there is counts: the record may be written."""
        self.on_finished()

    def forget(self) -> None:
        """Steps were found: what a time window recorded before them is of no use."""
        self.discard()
        for file in self.files:
            os.unlink(os.path.join(self.settings["folder"], file["path"]))
        self.files.clear()

    def discard(self) -> None:
        """Ends the session without a trace: no session, no row and no trace function are left behind."""
        if self.lines is not None:
            self.lines.stop()
        self.observed(False)
        profiler, self.profiler = self.profiler, None
        if self.recording and profiler is not None:
            self.recording = False
            with contextlib.suppress(Exception):
                self.close()
                self.ranges.end()
                self._stop_trace(profiler)

    def _stop_trace(self, profiler: Any) -> None:
        with without_complaint(self.thread):
            self._quietly(profiler.stop_trace)

    def _make(self, role: str) -> Any:
        first, self.used = not self.used, True
        return make(memory=bool(self.settings.get("memory")), host_alone=role == "lines", first=first)

    def _quietly(self, call: Callable[[], None]) -> None:
        """Calls the profiler; Kineto reads its log level from the environment when it starts, and only then."""
        known = os.environ.get("KINETO_LOG_LEVEL")
        self.changing = True
        try:
            if known is None:
                os.environ["KINETO_LOG_LEVEL"] = SILENT
            call()
        finally:
            self.changing = False
            if known is None:
                os.environ.pop("KINETO_LOG_LEVEL", None)

    def _check_disk(self) -> None:
        if shutil.disk_usage(self.settings["folder"]).free < _FREE_BYTES:
            raise OSError(28, "less than 256 MB of disk space is free for the trace")
