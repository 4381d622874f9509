"""What happens at which step: warm-up, un-profiled timing, the window, the lines step, observed steps, timing again.

Nothing here touches torch: the recorder does. Durations come in nanoseconds on the host's clock, or as marks on the
device that are read after the phase.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any

from .parts import Cut
from .periodic_steps import Pace, pace
from .plan import FEW, Plan, window_steps
from .recorder import Recorder

WARM, TIMING, READY, RECORD, LINES, OBSERVED, AFTER, DONE = range(8)

# Un-profiled step times kept: enough for a tail of one step in a hundred, small in run.json.
MOST_TIMES = 500
# The un-profiled phase before the window ends after two seconds once it has five steps: a script of slow steps is not
# held up, and five give a median.
_TIMING_NS = 2_000_000_000
# Steps that compile extend the warm-up, but not for ever: a script that recompiles in every step is profiled as it is.
_MOST_COMPILING = 30
# The first steps after a window pay for its export (caches, collected garbage).
_SETTLE = 3
# The window closes after this time even when steps are missing: the trace must stay of a readable size.
_WINDOW_NS = 30_000_000_000
# A window in which the loop's thread was ready for so much of its time and had no core is recorded again, so often at
# most, and the calmest one is kept: nine of ten scripts on a machine that did nothing else waited less than a twentieth
# of a step.
BUSY, _MOST_WINDOWS = 0.2, 3
# Boundaries without a training step that a window tolerates for each step asked for (evaluation inside training).
_PATIENCE = 4


class Phases:
    """The state of one rank's capture; `boundary` is called at every boundary of the settled source.

    cut: the parts of the step that ends, as far as somebody listens to them;  queued_ns: for how long the loop's thread
    was ready and had no core since it began, None where the system does not tell.
    """

    def __init__(
        self,
        recorder: Recorder,
        plan_: Plan,
        cut: Callable[[], Cut] = lambda: None,
        queued_ns: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.recorder = recorder
        self.cut = cut
        self.queued_ns = queued_ns
        self.plan = plan_
        self.phase = WARM
        self.left = plan_.warmup
        self.compiling = 0
        self.compiles = 0
        self.start: Any = None
        self.dropped = 0  # un-profiled steps before the window that were of another loop
        self.before: list[tuple[Any, Any]] = []
        self.after: list[tuple[Any, Any]] = []
        self.profiled: list[int] = []
        self.unprofiled_parts: list[tuple[float, Cut]] = []  # length of the step in ns, its parts
        self.profiled_parts: list[tuple[float, Cut]] = []
        self.timing_began_ns = 0
        self.began_ns = 0  # of the step that runs, by the host's clock
        self.host_ns: list[tuple[int, float]] = []  # un-profiled iterations, and what the host took for them
        self.pace: Pace | None = None
        self.waiting = False  # for a step of the other kind, whose lines are wanted
        self.asked = False  # for steps to observe
        self.seen = 0  # of these
        self.wanted = 0
        self.rows: dict[int, int] = {}
        self.row = 0
        self.patience = 0
        self.window_began_ns = 0
        self.row_began_ns = 0
        self.window_queued_ns: int | None = None
        self.wanted_rows = 0  # steps of a window of numbers
        self.windows = 0  # of these, that were recorded
        self.waited: float | None = None  # share of the kept one in which the loop had no core
        self.kept: tuple[dict[int, int], list[int], list[tuple[float, Cut]]] | None = None

    def at_length(self, now_ns: int) -> bool:
        """Whether the next boundary may take milliseconds: a window is made ready, opened or kept there."""
        if self.phase == AFTER:
            return bool(self._due())
        return self.phase in (READY, RECORD, LINES, OBSERVED) or (self.phase == TIMING and self._last_timed(now_ns, 1))

    def boundary(self, now_ns: int, trained: bool, clean: bool, iteration: int) -> None:
        """One boundary. iteration: the number of the training iteration that ends here, from 0."""
        if self.phase == DONE:
            return
        (self._warm, self._time, self._ready, self._record, self._lines, self._observed, self._after)[self.phase](
            now_ns, trained, clean, iteration
        )

    def _warm(self, now_ns: int, trained: bool, _clean: bool, _iteration: int) -> None:
        compiles = self.recorder.compiles()
        if compiles != self.compiles and self.compiling < _MOST_COMPILING:
            self.compiles = compiles
            self.compiling += 1
            self.left = max(self.left, 2)
        self.left -= trained
        if self.left <= 0:
            self.phase = TIMING
            self.timing_began_ns = now_ns
            self.start = self.recorder.mark() or now_ns
            self.began_ns = now_ns

    def _time(self, now_ns: int, trained: bool, clean: bool, iteration: int) -> None:
        mark, parts = self.recorder.mark() or now_ns, self.cut()
        if trained and clean:
            self.before.append((self.start, mark))
            self.host_ns.append((iteration, now_ns - self.began_ns))
            self._keep_parts(mark, parts)
        self.start, self.began_ns = mark, now_ns
        if self._last_timed(now_ns, 0):
            self._enter_window(now_ns)

    def _last_timed(self, now_ns: int, more: int) -> bool:
        """Whether enough steps are timed, with so many more."""
        count = self.dropped + len(self.before) + more
        slow = self.plan.ranks == 1 and count >= FEW and now_ns - self.timing_began_ns > _TIMING_NS
        return count >= self.plan.timing or slow

    def _keep_parts(self, mark: Any, parts: Cut) -> None:
        if parts is not None and isinstance(mark, int) and isinstance(self.start, int):
            self.unprofiled_parts.append((mark - self.start, parts))

    def _enter_window(self, now_ns: int) -> None:
        # Where one step of many is long (an agent plays, and then learns in small steps), the window holds one of each.
        took = median(ns for _, ns in self.host_ns) if self.host_ns else now_ns - self.timing_began_ns
        self.wanted = self.wanted_rows = window_steps(self.plan, took)
        self.recorder.timed(len(self.before))
        if not self.recorder.prepare():
            return  # another profiler is at work: asked again at the next boundary
        self.phase = READY
        if self.plan.timing < FEW and not self.plan.steps:
            self._ready(now_ns, False, False, 0)  # too few steps to spend one on the profiler's own warm-up

    def _ready(self, now_ns: int, _trained: bool, _clean: bool, _iteration: int) -> None:
        if not self.recorder.start("profile"):
            self.phase = TIMING
            return
        self.phase = RECORD
        self._open_rows(now_ns, self.wanted)

    def _open_rows(self, now_ns: int, wanted: int) -> None:
        self.rows, self.row = {}, 0
        self.patience = _PATIENCE * wanted
        self.window_began_ns, self.window_queued_ns = now_ns, self.queued_ns()
        self._open_row()

    def _record(self, now_ns: int, trained: bool, clean: bool, iteration: int) -> None:
        self.recorder.close()
        parts = self.cut()
        if trained and clean:
            self.rows[self.row] = iteration
            self.profiled.append(now_ns - self.row_began_ns)
            self.profiled_parts.append((self.profiled[-1], parts))
        else:
            self.patience -= 1
        # Fewer steps are whole ones, too: they are no window that ended early.
        enough = len(self.rows) >= self.wanted or (bool(self.rows) and self.recorder.full())
        if enough or self._must_close(now_ns):
            self._close_window(now_ns, enough)
            return
        self._next_row()

    def _close_window(self, now_ns: int, enough: bool) -> None:
        """Keeps the window, or the earlier one where that was calmer."""
        waited = self._waited(now_ns)
        self.windows += 1
        if self.kept is not None and not (enough and waited is not None and waited < (self.waited or 0.0)):
            self._keep_the_earlier()
            self._record_again(now_ns)
            return
        first, self.waited = self.kept is None, waited
        self.recorder.stop(self.rows, partial=not enough)
        self.kept = (self.rows, self.profiled, self.profiled_parts) if enough else None
        if first:
            self._enter_lines(now_ns)
        else:
            self._record_again(now_ns)

    def _record_again(self, now_ns: int) -> None:
        """One more window where the machine was busy during the kept one: after all else, as the script may end."""
        busy = self.kept is not None and self.waited is not None and self.waited >= BUSY
        # Ranks wait for each other: all are recorded at the same time.
        if busy and self.windows < _MOST_WINDOWS and self.plan.ranks == 1 and self.recorder.affords(self.wanted_rows):
            self.recorder.finished()  # what there is counts already
            if self.recorder.start("profile"):
                self.phase = RECORD
                self.profiled, self.profiled_parts = [], []
                self.wanted = self.wanted_rows
                self._open_rows(now_ns, self.wanted)
                return
        self._enter_after()

    def _waited(self, now_ns: int) -> float | None:
        """Share of the open window in which the loop's thread was ready and had no core; None where unknown."""
        queued_ns = self.queued_ns()
        if queued_ns is None or self.window_queued_ns is None:
            return None
        return min((queued_ns - self.window_queued_ns) / max(now_ns - self.window_began_ns, 1), 1.0)

    def _keep_the_earlier(self) -> None:
        self.recorder.discard()
        if self.kept is not None:
            self.rows, self.profiled, self.profiled_parts = self.kept

    def _next_row(self) -> None:
        self.row += 1
        self._open_row()

    def _open_row(self) -> None:
        # Read after the recorder's own work: the first row opens when the profiler has started.
        self.recorder.open(self.row)
        self.cut()
        self.row_began_ns = perf_counter_ns()

    def _must_close(self, now_ns: int) -> bool:
        late = self.plan.ranks == 1 and now_ns - self.window_began_ns > _WINDOW_NS
        return self.patience < 0 or late or self.recorder.too_big() or self.recorder.full()

    def _enter_lines(self, now_ns: int) -> None:
        if not self.plan.lines:
            self._record_again(now_ns)
            return
        if not self.recorder.start("lines"):
            self._enter_observed(now_ns)  # which ops repeat their work is told without lines, too
            return
        self.phase = LINES
        # Ranks wait for each other: all are recorded at the same time, or none.
        recorded = [(self.rows[row], took) for row, took in zip(sorted(self.rows), self.profiled, strict=False)]
        self.pace = pace(self.host_ns, recorded) if self.plan.ranks == 1 else None
        self._open_rows(now_ns, 1)

    def _lines(self, now_ns: int, trained: bool, clean: bool, iteration: int) -> None:
        """Records one step, and where there are two kinds of steps one of the other kind as well.

        That one may never come: the script ends, or the pace was a busy machine's. So it is waited for after all else.
        """
        if not self.waiting:
            self.recorder.close()
            if trained:
                self.rows[self.row] = iteration
            self.patience -= 1
        more = self._lacks_a_kind()
        if (self.rows and not more) or self._must_close(now_ns):
            self.waiting = False
            self.recorder.stop(self.rows, partial=not self.rows)
            self._enter_observed(now_ns)
        elif not self.rows or self._is_lacking(iteration + 1):
            self.waiting = False
            self._next_row()
        elif not self.waiting:
            self.waiting = True
            self._enter_observed(now_ns)

    def _lacks_a_kind(self) -> bool:
        return self.pace is not None and len({self.pace.is_long(one) for one in self.rows.values()}) == 1

    def _is_lacking(self, iteration: int) -> bool:
        """Whether an iteration is of the kind that no recorded one is of."""
        return self.pace is not None and self.pace.is_long(iteration) not in map(self.pace.is_long, self.rows.values())

    def _enter_observed(self, now_ns: int) -> None:
        """Observes steps, once; or goes on with what else there is to do."""
        self.wanted = 0 if self.asked else self.recorder.observe()
        self.asked = True
        if self.wanted or self.waiting:
            self.recorder.finished()  # what there is counts already: the steps to come may be long
        if self.wanted:
            self.phase = OBSERVED
            self.seen = 0
            self.recorder.open(0)
        elif not self.waiting:
            self._record_again(now_ns)

    def _observed(self, now_ns: int, trained: bool, clean: bool, iteration: int) -> None:
        self.recorder.close()
        self.seen += 1
        whole = trained and clean
        if whole and self.seen < self.wanted:
            self.recorder.open(self.seen)
            return
        self.recorder.observed(whole)
        if self.waiting:
            self.phase = LINES
            self._lines(now_ns, trained, clean, iteration)
        else:
            self._record_again(now_ns)

    def _enter_after(self) -> None:
        self.phase = AFTER
        self.left = _SETTLE
        self.start = None
        self.recorder.finished()

    def goes_on(self) -> None:
        """A later window is over: what it took is in no step of these."""
        self.left, self.start = _SETTLE, None

    def _due(self) -> str:
        """What could not be recorded before and can be now. Ranks wait for each other: none goes its own way."""
        return self.recorder.due() if self.plan.ranks == 1 else ""

    def _after(self, now_ns: int, trained: bool, clean: bool, _iteration: int) -> None:
        # Behind a clean step another one follows, most of the time; behind an epoch's last comes an evaluation.
        if trained and clean and (role := self._due()):
            self._make_up_for(role, now_ns)
            return
        self.left -= 1
        if len(self.before) + len(self.after) >= MOST_TIMES:
            if self.plan.ranks > 1 or not self.recorder.waits():
                self.phase = DONE
        elif self.left <= 0:
            mark, parts = self.recorder.mark() or now_ns, self.cut()
            if trained and clean and self.start is not None:
                self.after.append((self.start, mark))
                self._keep_parts(mark, parts)
            self.start = mark

    def _make_up_for(self, role: str, now_ns: int) -> None:
        if role == "lines":
            self._enter_lines(now_ns)
        else:
            self.asked = False
            self._enter_observed(now_ns)

    def leaves(self, plan_: Plan | None) -> None:
        """Training has moved to another loop: nothing from here on belongs to what was recorded.

        plan_: for that loop, which is recorded instead while there is no window; None to go on as before. A window of
        several ranks goes on in any case, as all of them record the same steps.
        """
        few = self.phase == RECORD and self.kept is None and len(self.rows) < min(FEW, self.wanted)
        if few and self.plan.ranks > 1:
            return
        if not few and self.phase not in (WARM, TIMING, READY):
            self.interrupt(whole=True)
            self.phase = DONE
            return
        self._drop()
        if plan_ is None:
            return
        if self.phase in (READY, RECORD):
            self.recorder.discard()
        self.plan, self.phase = plan_, WARM
        self.left, self.compiling, self.dropped = plan_.warmup, 0, 0

    def _drop(self) -> None:
        """Forgets the steps so far."""
        self.dropped += len(self.before)
        self.before, self.host_ns, self.unprofiled_parts = [], [], []
        self.rows, self.profiled, self.profiled_parts = {}, [], []

    def interrupt(self, again: bool = False, whole: bool = False) -> bool:
        """Closes an open window at once: the script ends, or (again) profiles itself. True if one was open.

        A window without a whole step is tried again where the script goes on. whole: the steps so far are enough.
        """
        if self.phase == READY:
            self.phase = TIMING
        if self.phase not in (RECORD, LINES, OBSERVED):
            return False
        self.recorder.close()
        if self.phase == OBSERVED:
            self.recorder.observed(False)
            if not self.waiting:
                self._enter_after()
                return True
            self.phase = LINES
        if self.kept is not None and self.phase == RECORD:
            self._keep_the_earlier()
            self._enter_after()
        elif again and not self.rows and self.phase == RECORD:
            self.recorder.discard()
            self.phase = TIMING
        else:
            # One step with its lines is all that they need: a second one was only waited for.
            self.recorder.stop(self.rows, partial=not (self.rows and (whole or self.phase == LINES)))
            self._enter_after()
        return True
