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

from ..dataflow.observer import MOST_ROWS, STEPS, WITHOUT_STRIDES, Observer
from ..guards.hooks import Ranges
from ..guards.interrupts import let_through
from ..steps.clock import Clock
from .budget import Budget, Growth, resident_bytes
from .kineto_stderr import without_complaint
from .lines import LineRecorder
from .profiler import SILENT, make
from .trace_file import ROW, compress, holds, uses_tensors_without_strides

# Beside the rows of a step's ops the window with lines has two for each line.
_LINES = 1.5
# A window of numbers leaves more than that: what it took is known only when it has stopped.
_LINES_AHEAD = 2.0
# A window is not opened with less free space than this: a trace of ten steps is some tens of MB before compression.
_FREE_BYTES = 256 << 20
# The profiler may hold this much more memory than the process had before the window.
_MOST_GROWTH_BYTES = 2 << 30
# A window of numbers takes so much of what is left once it has three steps, which are enough for a median, and leaves
# what lines and observed steps will take. What a window has cost is known only when it has stopped.
_ENOUGH_STEPS, _SHARE_OF_NUMBERS = 3, 0.5
# Ranks record so many, however short steps are: a window that has them is not called short.
_ORDINARY_STEPS = 5
# Within a step its rows are counted once it has taken so much CPU time: 100,000 rows and more.
_LONG_S = 0.25
# What is postponed beside lines; observed steps that epochs' ends cut short are begun anew so often at most.
_OBSERVED, _MOST_CUT_SHORT = "observed", 3
# So often lines are tried once more where a step filled their window.
_MOST_OVERFLOWS = 2
# Rows of a backward pass for each of its forward pass: 1.5 to 2.5 in loops over small ops.
_OF_BACKWARD = 2.0


class Window:
    """The recorder of one rank. Every method may raise; the session turns that into a note."""

    def __init__(self, settings: dict[str, Any], name: Callable[[str], str], clock: Clock) -> None:
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
        self.budget = Budget()
        self.growth = Growth()
        self.closed = 0  # rows of steps in the open window
        self.rows_fetched = 0.0  # of the step that runs, before its forward pass
        self.short = False  # it was closed for what more of them would cost
        self.resident = 0
        self.size = 0
        self.refused = False
        self.ranges = Ranges()
        self.on_stop: Callable[[], None] = lambda: None
        self.on_timed: Callable[[], None] = lambda: None
        self.on_finished: Callable[[], None] = lambda: None
        self.used = False  # the profiler was brought up in this process
        self.modules: Callable[[], dict[int, str]] = dict  # id of a module of the model -> its path
        self.observer = Observer(settings["folder"], lambda: name("dataflow"))
        self.rows_per_step = 0.0
        self.unobserved = ""  # why no steps will be observed
        # Lines or observed steps that cost too much so far, or that an epoch's end cut short, with what is said of that
        # where the script ends before they could be recorded after all.
        self.postponed: dict[str, str] = {}
        self.cut_short = 0  # times that observed steps were
        self.overflowing = 0  # times that a step filled the window with lines

    def prepare(self) -> bool:
        """Readies the profiler (its warm-up); False while the script's own profiler is at work."""
        if self.theirs or torch.autograd._profiler_enabled():
            self.refused = True
            return False
        self._check_disk()
        with self.budget.spending():
            self.profiler = self._make("profile")
            self._quietly(self.profiler.prepare_trace)
        return True

    def start(self, role: str) -> bool:
        """Starts to record; False when the script's own profiler came in between."""
        if self.theirs or torch.autograd._profiler_enabled():
            self.profiler = None
            return False
        if not self._affords(role):
            return False
        with self.budget.spending():
            if self.profiler is None:
                self.profiler = self._make(role)
                self._quietly(self.profiler.prepare_trace)
            self.role = role
            if role == "lines":
                self._make_lines()
            self.resident = resident_bytes()
            self.growth.start()
            self.closed, self.rows_fetched, self.short = 0, 0.0, False
            self.thread = get_ident()
            self._quietly(self.profiler.start_trace)
        self.recording = True
        self.ranges.watch()
        return True

    def _affords(self, role: str) -> bool:
        """Whether what a window will cost may still be spent; says so where it may not."""
        if role == "lines":
            takes_s = self._takes_s(role)
            if takes_s > self.budget.left_s():
                self.postponed[role] = (
                    f"lines were not recorded: a step has about {self.rows_per_step:,.0f} ops, and one more takes "
                    f"{takes_s:.1f} s of CPU time (docs/capture.md, Bounds)"
                )
                return False
            self.postponed.pop(role, None)
        return role != "window" or self.budget.affords(self.rows_per_step)

    def _takes_s(self, role: str) -> float:
        """CPU time that lines, or observed steps, will take in all."""
        if role == "lines":
            return self.budget.rows_s(_LINES * self.rows_per_step)
        return self.budget.observing_s(STEPS * self.rows_per_step)

    def waits(self) -> bool:
        """Whether lines or observed steps were postponed."""
        return bool(self.postponed)

    def due(self) -> str:
        """What was postponed and can be afforded by now: the longer a script runs, the more may be spent on it."""
        return next((role for role in self.postponed if self._takes_s(role) <= self.budget.left_s()), "")

    def open(self, number: int) -> None:
        """Opens the row of a step; in the lines window lines are recorded from here on."""
        if self.observer.on:
            self.observer.open(number)
            return
        self.rows_fetched = self.growth.rows(self.closed)
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
            self.closed += 1

    def stop(self, rows: dict[int, int], partial: bool) -> None:
        """Stops to record and writes the trace. rows: the rows that were whole training steps -> iteration."""
        with self.budget.spending():
            self._stop(rows, partial)

    def _stop(self, rows: dict[int, int], partial: bool) -> None:
        began_s = self.budget.now_s()
        profiler, self.profiler, self.recording = self.profiler, None, False
        self.ranges.end()
        self._stop_trace(profiler)
        if get_ident() != self.thread:
            self.notes.append(f"the {self.role} trace was lost: its thread still trained when the process ended")
            return
        if self.role == "lines" and self.lines.cut:
            self.notes.append(
                f"the lines step ran more than {self.lines.events} lines: its later ones are not recorded"
            )
        stopped_s = self.budget.now_s() - began_s
        self.on_stop()
        if not rows and self.role == "lines":
            return
        began_s = self.budget.now_s() - stopped_s
        role = "lines" if self.role == "lines" else "profile"
        path = self.name(role)
        plain = path[: -len(".gz")]
        try:
            profiler.export_chrome_trace(plain)
            if not self._larger(plain):
                return
            if role == "profile" and uses_tensors_without_strides(plain):
                self.unobserved = WITHOUT_STRIDES
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
            self.rows_per_step = count / max(self.closed, 1)
            self._say_if_short(len(rows))
        self.budget.written(count, self.budget.now_s() - began_s)
        steps = {f"ProfilerStep#{iteration}": iteration for iteration in rows.values()}
        self.files.append({"path": os.path.basename(path), "role": role, "steps": steps, "partial": partial})

    def _say_if_short(self, steps: int) -> None:
        if self.short and 0 < steps < _ORDINARY_STEPS:
            each_s = self.budget.rows_s(self.rows_per_step)
            self.notes.append(
                f"the window was closed after {steps} step{'s' * (steps > 1)}: one has about {self.rows_per_step:,.0f} "
                f"ops, and each more takes {each_s:.1f} s of CPU time (docs/capture.md, Bounds)"
            )

    def observe(self) -> int:
        """Begins to observe what ops read and write; for how many steps, 0 where that cannot be."""
        self.postponed.pop(_OBSERVED, None)
        try:
            with self.budget.spending():
                if self.cut_short:
                    self._look_ahead()  # what was found before is gone by now
                begun = not self.theirs and self._observes()
        except Exception as failure:
            let_through(failure)
            begun = False
            self.observed(False)
            self.observer.why = f"the observer did not start ({type(failure).__name__})"
        return STEPS if begun else 0

    def _observes(self) -> bool:
        if self.unobserved:
            self.observer.why = self.unobserved
            self.notes.append(f"what ops read was not observed: {self.unobserved}")
            return False
        rows, takes_s = self.rows_per_step, self._takes_s(_OBSERVED)
        if rows > MOST_ROWS:
            self.observer.why = (
                f"a step has about {rows:,.0f} ops, and what they read is observed of at most {MOST_ROWS:,}"
            )
            self.notes.append(f"what ops read was not observed: {self.observer.why} (docs/capture.md, Bounds)")
            return False
        if takes_s > self.budget.left_s():
            why = f"a step has about {rows:,.0f} ops, and to observe what they read takes {takes_s:.1f} s of CPU time"
            self.observer.why = why
            self.postponed[_OBSERVED] = f"what ops read was not observed: {why} (docs/capture.md, Bounds)"
            return False
        return self.observer.start(bool(self.compiles()))

    def observed(self, whole: bool) -> None:
        """The observed steps are over; whole: each of them trained, and all of them ran."""
        if self.observer.on and not whole:
            self.cut_short += 1
            if self.cut_short < _MOST_CUT_SHORT:
                self.postponed[_OBSERVED] = ""
        try:
            with self.budget.spending():
                self.observer.stop(whole)
            if self.observer.file and whole:
                self.budget.observed(STEPS * self.rows_per_step)
        except Exception as failure:
            let_through(failure)
            said = getattr(failure, "strerror", None) or type(failure).__name__
            self.observer.why = f"the observer's output could not be kept ({said})"
        if whole and self.observer.why:
            self.notes.append(f"what ops read was not observed: {self.observer.why}")

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
        self.lines = LineRecorder(self.modules())

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
        return resident_bytes() - self.resident > _MOST_GROWTH_BYTES

    def full(self) -> bool:
        """Whether the open window may not go on for another step: its rows take what CPU time is left.

        A window of numbers leaves enough for a step with lines. Ranks of one job must choose the same, so there what
        was measured counts for nothing.
        """
        rows = self.growth.rows(self.closed)
        more = rows / max(self.closed, 1)
        ahead = rows + more + (_LINES_AHEAD * more if self.role == "profile" else 0.0)
        alone = self.budget.ranks == 1
        budget = self.budget if alone else Budget(self.budget.ranks, lambda: 0.0)
        found = not budget.affords(ahead)
        if self.role == "profile" and self.closed >= _ENOUGH_STEPS:
            # More steps repeat what these tell; lines and observed steps tell something else.
            left_s = budget.left_s()
            others_s = budget.rows_s(_LINES * more) + budget.observing_s(STEPS * more)
            found = found or budget.rows_s(rows + more) > min(_SHARE_OF_NUMBERS * left_s, left_s - others_s)
        self.short |= found
        return found

    def affords(self, steps: int) -> bool:
        """Whether one more window of so many steps may be recorded, and lines after it."""
        return self.budget.affords((steps + _LINES_AHEAD) * self.rows_per_step)

    def fetched(self) -> None:
        """A batch is there: what was recorded so far of this step has no backward pass."""
        self.rows_fetched = self.growth.rows(self.closed, "fetched")

    def overflows(self, place: str) -> bool:
        """Whether a window is open that a single step fills; looked at inside of steps that take long.

        place: in the step. A backward pass that begins will run about twice the ops of the forward pass.
        """
        if not self._is_long():
            return False
        rows = self.growth.rows(self.closed, place)
        ahead = _OF_BACKWARD * max(rows - self.rows_fetched, 0.0) if place == "backward" else 0.0
        return not self.budget.affords(rows + ahead)

    def overflowed(self) -> None:
        """The open window is filled by the step that runs: says what that leaves out, unless lines can follow later."""
        which = "window with lines" if self.role == "lines" else "window"
        said = f"a {which} was closed inside of a step: it runs more ops than may be recorded (docs/capture.md, Bounds)"
        later = self.role == "lines" and self.overflowing < _MOST_OVERFLOWS
        if later:
            # This step has more ops than the others; what has to be affordable is one like it, as far as it got twice.
            self.overflowing += 1
            self.rows_per_step = max(self.rows_per_step, 2 * self.growth.rows(self.closed) / _LINES)
            self.postponed["lines"] = said
        else:
            self.notes.append(said)
        if not self.observer.file and not self.observer.why:
            self.observer.why = "a step runs more ops than may be recorded"
            said = f"what ops read was not observed: {self.observer.why}"
            if later:
                self.postponed[_OBSERVED] = said
            else:
                self.notes.append(said)

    def _is_long(self) -> bool:
        return self.recording and self.budget.now_s() - self.growth.began_s >= _LONG_S

    def mark(self) -> Any:
        """An event on the device; None where no device is in use: the host's clock tells."""
        self.growth.timing()
        return self.clock.mark()

    def timed(self, steps: int) -> None:
        """The un-profiled phase before the window is over, with so many steps."""
        self.clock.phase_ends(steps)
        self.growth.timing_ends(steps)
        self.on_timed()
        if self.settings.get("lines", True):
            with self.budget.spending():
                self._look_ahead()

    def _look_ahead(self) -> None:
        if self.budget.affords_walk():
            self.observer.look()
        else:
            self.unobserved = "the script holds millions of objects, too many to look for its tensors among them"

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
            raise OSError(28, "less than 256 MB are free for the trace")
