"""Stacks of the loop's thread, sampled by a thread of our own a few times a second, and the place that each stands for.

The clock at the boundaries of steps says how long a stretch between two of them took; samples say where it went. They
cost what a wake-up costs: the pause between two grows with what they were measured to take, so that beyond the first
hundred they stay below a thousandth of the run. Where lines of a step cannot be recorded, samples are all that tells
of lines: a few hundred more are taken then.
"""

from __future__ import annotations

import sys
import time
from _thread import start_new_thread
from collections.abc import Callable
from types import FrameType
from typing import Literal

from ..guards.thread_frames import thread_frames
from .code_marks import FORWARD, Codes
from .forward_passes import MOST_ABOVE, NONE, Passing, passing
from .lock_turn import LockTurn

# A stack: (key of the function in `Codes`, the line that runs), the outermost first.
Stack = tuple[tuple[int, int], ...]
# None are taken; one waits for Python's lock as any thread does; it asks for the lock at once, which tells what takes
# less than 5 ms, and costs some 5 % of a core while C code of the script's holds the lock.
Sampling = Literal["paused", "waits", "asks"]

# The shortest pause; and the share of the run that samples may take, beyond a start in which a short script is seen.
_PAUSE_S, _SHARE, _START_NS = 0.05, 0.001, 25_000_000
# So much more where no line is recorded: some 150 samples at 0.4 ms, which tell a share to 8 % of all.
_CLOSER_NS = 60_000_000
# Different outermost modules that are known to train; a script with more makes them anew.
_MOST_MODULES = 1000
# What anomaly detection calls for each node of autograd's graph: it is no part of the stack that it formats.
_FORMATS = "format_stack"
# Lines below a place in which a loop is looked for.
_MOST_BELOW = 4
# Deeper stacks are those of a recursion; what runs is then told by the outer part.
_DEEPEST = 400


class Sampler:
    """Takes samples until `needed` says no. thread: the ident of the thread to look at. taken: told each sample.

    sampling: how they are taken at this time.

    It runs beside the script, so `taken` only puts down what it is told.
    """

    def __init__(
        self,
        needed: Callable[[], bool],
        thread: Callable[[], int],
        taken: Callable[[Stack, Passing], None],
        sampling: Callable[[], Sampling],
    ) -> None:
        self.needed = needed
        self.thread = thread
        self.taken = taken
        self.sampling = sampling
        self.turn = LockTurn()
        self.codes = Codes()
        self.trained: set[int] = set()  # ids of outermost modules that ran in training mode
        self.count = 0
        self.spent_ns = 0  # by all but the first, which finds nothing in any cache: some 1 ms in place of 0.4
        self.room_ns = _START_NS  # what samples may take beyond their share

    def look_closer(self) -> None:
        """From now on the shortest pause, for some seconds."""
        self.room_ns = self.spent_ns + _CLOSER_NS

    def start(self) -> None:
        """Begins. The thread is no threading.Thread: the script's own list of threads stays as it was."""
        start_new_thread(self._run, ())

    def _run(self) -> None:
        began_ns, pause_s, first_ns = time.perf_counter_ns(), _PAUSE_S, 0
        while True:
            (self.turn.sleep if self.sampling() == "asks" else time.sleep)(pause_s)
            if sys.is_finalizing() or not self.needed():
                return
            if self.sampling() == "paused":
                continue
            try:
                self._sample()
            except Exception:
                return  # the account of the run stays without places; the script goes on
            self.count += 1
            first_ns = first_ns or time.thread_time_ns()
            self.spent_ns = time.thread_time_ns() - first_ns
            pause_s = self._pause(time.perf_counter_ns() - began_ns)

    def _pause(self, elapsed_ns: int) -> float:
        """Seconds until the next sample: the shortest pause while there is room, else what one costs by the share."""
        if self.spent_ns < _SHARE * elapsed_ns + self.room_ns:
            return _PAUSE_S
        return max(_PAUSE_S, self.spent_ns / self.count / _SHARE / 1e9)

    def _sample(self) -> None:
        thread, frames = self.thread(), thread_frames()
        self.turn.seen(frames, thread)
        frame = frames.get(thread)
        del frames
        stack, runs = self.walk(frame)
        del frame
        self.taken(stack, runs)

    def walk(self, frame: FrameType | None) -> tuple[Stack, Passing]:
        """The stack that ends in a frame; the outermost module on it."""
        stack: list[tuple[int, int]] = []
        modules: list[FrameType] = []
        way: list[tuple[int, int]] = []
        above = 0  # innermost frames that are no part of the pass
        while frame is not None and len(stack) < _DEEPEST:
            key = self.codes.of(frame.f_code)
            known = self.codes.known[key]
            # Python has instructions that belong to no line: the end of a `with` block, what a function begins with.
            at = (key, frame.f_lineno or frame.f_code.co_firstlineno)
            if known.mark == FORWARD:
                modules.append(frame)
                way = []
            elif modules and known.file and len(way) < MOST_ABOVE:
                way.append(at)
            if not known.file and known.function == _FORMATS:
                above = len(stack) + 1
            stack.append(at)
            frame = frame.f_back
        stack.reverse()
        # What is read of the frames' variables goes with the frames: nothing of ours holds a tensor.
        files = [self.codes.known[one].code.co_filename for one, _ in stack[: len(stack) - above]] if modules else []
        runs = passing(modules, way, files) if modules else NONE
        if runs.trains and len(self.trained) < _MOST_MODULES:
            self.trained.add(runs.trains)
        return tuple(stack), runs


class Place:
    """Where a sampled stack leaves the way that leads to the training step.

    file, line, function  the user's line there: in the loop, or in what a framework calls
    inner                 (file, line, function) of the user's innermost line, where it is another
    way                   (file as Python opens it, file, line, function) of the user's lines below, outermost first
    step_line             the line of the same function that the training step runs under; 0 where it is not on the way
    step_way              (file as Python opens it, line) of the user's lines below that one, outermost first
    package               whose code the innermost user's line runs; empty for its own
    marks                 which known work was on the stack
    call                  (file, line, function) of the user's line that calls the outermost module on the stack
    """

    __slots__ = (
        "call",
        "file",
        "function",
        "inner",
        "line",
        "marks",
        "package",
        "source",
        "step_line",
        "step_way",
        "way",
    )

    def __init__(self, codes: Codes, stack: Stack, step: Stack) -> None:
        known = [codes.known[key] for key, _ in stack]
        leaves = _leaves(stack, step)
        mine = [at for at, one in enumerate(known) if one.file]
        below = [at for at in mine if at >= leaves]
        at = below[0] if below else mine[-1] if mine else -1
        self.file, self.line, self.function, self.source = "", 0, "", ""
        self.step_line, self.inner = 0, ("", 0, "")
        self.step_way: list[tuple[str, int]] = []
        self.way = [
            (known[one].code.co_filename, known[one].file, stack[one][1], known[one].function)
            for one in below[1 : 1 + _MOST_BELOW]
        ]
        if at >= 0:
            self.file, self.line, self.function = known[at].file, stack[at][1], known[at].function
            self.source = known[at].code.co_filename
            if at < len(step) and step[at][0] == stack[at][0]:
                self.step_line = step[at][1]
                below_step = ((codes.known.get(key), line) for key, line in step[at + 1 :])
                self.step_way = [(one.code.co_filename, line) for one, line in below_step if one and one.file]
            if mine[-1] != at:
                self.inner = (known[mine[-1]].file, stack[mine[-1]][1], known[mine[-1]].function)
        self.package = next((one.package for one in known[mine[-1] + 1 if mine else 0 :] if one.package), "")
        self.marks = tuple(sorted({one.mark for one in known if one.mark}))
        module = next((at for at, one in enumerate(known) if one.mark == FORWARD), 0)
        above = next((at for at in reversed(mine) if at < module), -1)
        self.call = (known[above].file, stack[above][1], known[above].function) if above >= 0 else ("", 0, "")

    def key(self) -> tuple[object, ...]:
        """What samples of one place have alike."""
        return (self.file, self.line, self.function, self.inner, self.package, self.marks, self.call)


def _leaves(stack: Stack, step: Stack) -> int:
    """How many of the outermost functions run the same line on both."""
    both = min(len(stack), len(step))
    return next((at for at in range(both) if stack[at] != step[at]), both)
