"""What the windows of a process take, counted in rows of their steps, and whether one more can be afforded."""

from __future__ import annotations

from ..dataflow.observer import STEPS
from .budget import Budget, Growth, resident_bytes

# The two roles that may be postponed: lines, and steps whose ops are observed.
LINES, OBSERVED = "lines", "observed"
# Beside the rows of a step's ops the window with lines has two for each line.
_LINES = 1.5
# A window of numbers leaves more than that: what it took is known only when it has stopped.
_LINES_AHEAD = 2.0
# The profiler may hold this much more memory than the process had before the window.
_MOST_GROWTH_BYTES = 2 << 30
# A window of numbers takes so much of what is left once it has three steps, which are enough for a median, and leaves
# what lines and observed steps will take. What a window has cost is known only when it has stopped.
_ENOUGH_STEPS, _SHARE_OF_NUMBERS = 3, 0.5
# Within a step its rows count from here on: what fewer cost is known when it is over, and a step that was closed for
# a backward pass that turns out to be short is lost.
_MANY_ROWS = 100_000
# Ranks record so many, however short steps are: a window that has them is not called short.
_ORDINARY_STEPS = 5
# So often lines are tried once more where a step filled their window.
_MOST_OVERFLOWS = 2
# Rows of a backward pass for each of its forward pass: 1.5 to 2.5 in loops over small ops.
_OF_BACKWARD = 2.0


class Costs:
    """The costs of one recorder.

    rows_per_step  of the last window of numbers, 0 before there was one
    closed         steps of the open window that are over
    postponed      lines or observed steps that cost too much so far, or that an epoch's end cut short, with what is
                   said of that where the script ends before they could be recorded after all
    """

    def __init__(self) -> None:
        self.budget = Budget()
        self.growth = Growth()
        self.rows_per_step = 0.0
        self.closed = 0
        self.postponed: dict[str, str] = {}
        self._rows_fetched = 0.0  # of the step that runs, before its forward pass
        self._short = False  # the open window was closed for what more of it would cost
        self._overflowing = 0  # times that a step filled the window with lines
        self._resident = 0

    def of_later(self) -> Costs:
        """Those of a later window in the same process."""
        later = Costs()
        later.budget, later.rows_per_step = self.budget, self.rows_per_step
        later.growth.per_step = self.growth.per_step
        return later

    def window_starts(self) -> None:
        """The profiler is about to record."""
        self._resident = resident_bytes()
        self.growth.start()
        self.closed, self._rows_fetched, self._short = 0, 0.0, False

    def step_opens(self) -> None:
        """A step of the open window begins."""
        self._rows_fetched = self.growth.rows(self.closed)

    def fetched(self) -> None:
        """A batch is there: what was recorded so far of this step has no backward pass."""
        self._rows_fetched = self.growth.rows(self.closed, "fetched")

    def takes_s(self, role: str) -> float:
        """CPU time that lines, or observed steps, will take in all."""
        if role == LINES:
            return self.budget.rows_s(_LINES * self.rows_per_step)
        return self.budget.observing_s(STEPS * self.rows_per_step)

    def affords_role(self, role: str) -> bool:
        """Whether a window of this role may be opened; lines that may not are postponed."""
        if role == LINES:
            takes_s = self.takes_s(role)
            if takes_s > self.budget.left_s():
                self.postponed[role] = (
                    f"lines were not recorded: a step has about {self.rows_per_step:,.0f} ops, and one more would take "
                    f"{takes_s:.1f} s of CPU time (docs/capture.md, Bounds)"
                )
                return False
            self.postponed.pop(role, None)
        return role != "window" or self.budget.affords(self.rows_per_step)

    def without_lines(self) -> bool:
        """Whether no line could be recorded so far."""
        return LINES in self.postponed

    def due(self) -> str:
        """What was postponed and can be afforded by now: the longer a script runs, the more may be spent on it."""
        return next((role for role in self.postponed if self.takes_s(role) <= self.budget.left_s()), "")

    def affords(self, steps: int) -> bool:
        """Whether one more window of so many steps may be recorded, and lines after it."""
        return self.budget.affords((steps + _LINES_AHEAD) * self.rows_per_step)

    def full(self, role: str) -> bool:
        """Whether the open window may not go on for another step: its rows take what CPU time is left.

        A window of numbers leaves enough for a step with lines. Ranks of one job must choose the same, so there what
        was measured counts for nothing.
        """
        rows = self.growth.rows(self.closed)
        more = rows / max(self.closed, 1)
        ahead = rows + more + (_LINES_AHEAD * more if role == "profile" else 0.0)
        alone = self.budget.ranks == 1
        budget = self.budget if alone else Budget(self.budget.ranks, lambda: 0.0)
        found = not budget.affords(ahead)
        if role == "profile" and self.closed >= _ENOUGH_STEPS:
            # More steps repeat what these tell; lines and observed steps tell something else.
            left_s = budget.left_s()
            others_s = budget.rows_s(_LINES * more) + budget.observing_s(STEPS * more)
            found = found or budget.rows_s(rows + more) > min(_SHARE_OF_NUMBERS * left_s, left_s - others_s)
        self._short |= found
        return found

    def overflows(self, place: str) -> bool:
        """Whether the step that runs fills the open window by itself; looked at inside of steps that take long.

        place: in the step. A backward pass that begins will run about twice the ops of the forward pass.
        """
        if self.growth.most_rows() < _MANY_ROWS:
            return False  # without a look at the memory, which takes longer than a short step
        rows = self.growth.rows(self.closed, place)
        return rows >= _MANY_ROWS and not self.budget.affords(self._with_backward(rows, place))

    def _with_backward(self, rows: float, place: str) -> float:
        """So many rows, and those that a backward pass will add which begins at this place."""
        return rows + (_OF_BACKWARD * max(rows - self._rows_fetched, 0.0) if place == "backward" else 0.0)

    def tries_lines_again(self) -> bool:
        """Whether lines may be tried once more after a step that filled their window."""
        if self._overflowing >= _MOST_OVERFLOWS:
            return False
        # This step has more ops than the others; what has to be affordable is one like it, as far as it got twice.
        self._overflowing += 1
        self.rows_per_step = max(self.rows_per_step, 2 * self.growth.rows(self.closed) / _LINES)
        return True

    def too_big(self) -> bool:
        """Whether the profiler holds more memory than it may."""
        return resident_bytes() - self._resident > _MOST_GROWTH_BYTES

    def recorded(self, rows: int, steps: int) -> list[str]:
        """A window of numbers was written, with so many whole training steps: what is to be said of it."""
        self.rows_per_step = rows / max(self.closed, 1)
        if not self._short or not 0 < steps < _ORDINARY_STEPS:
            return []
        each_s = self.budget.rows_s(self.rows_per_step)
        return [
            f"the window was closed after {steps} step{'s' * (steps > 1)}: a step has about {self.rows_per_step:,.0f} "
            f"ops, and each further one takes {each_s:.1f} s of CPU time (docs/capture.md, Bounds)"
        ]
