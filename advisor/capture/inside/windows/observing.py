"""The observed steps of a recorder: begun where they can be afforded, and said where they cannot be."""

from __future__ import annotations

from collections.abc import Callable

from ..dataflow.observer import MOST_ROWS, STEPS, Observer
from ..guards.interrupts import let_through
from .costs import OBSERVED, Costs

# Observed steps that epochs' ends cut short are begun anew so often at most.
_MOST_CUT_SHORT = 3


class Observing:
    """What is observed of the steps after a window, and why nothing is. unobserved: why no steps will be."""

    def __init__(self, observer: Observer, costs: Costs, notes: list[str]) -> None:
        self.observer = observer
        self.costs = costs
        self.notes = notes
        self.unobserved = ""
        self._cut_short = 0

    def begin(self, theirs: bool, compiles: Callable[[], int]) -> int:
        """Begins to observe what ops read and write; for how many steps, 0 where that cannot be.

        theirs: the script's own profiler is at work;  compiles: how many graphs torch.compile has made
        """
        self.costs.postponed.pop(OBSERVED, None)
        try:
            with self.costs.budget.spending():
                if self._cut_short:
                    self.look_ahead()  # what was found before is gone by now
                begun = not theirs and self._begins(compiles)
        except Exception as failure:
            let_through(failure)
            begun = False
            self.end(False)
            self.observer.why = f"the observer did not start ({type(failure).__name__})"
        return STEPS if begun else 0

    def _begins(self, compiles: Callable[[], int]) -> bool:
        if self.unobserved:
            self.observer.why = self.unobserved
            self.notes.append(f"what ops read was not observed: {self.unobserved}")
            return False
        rows, takes_s = self.costs.rows_per_step, self.costs.takes_s(OBSERVED)
        if rows > MOST_ROWS:
            self.observer.why = f"a step has about {rows:,.0f} ops; at most {MOST_ROWS:,} are observed"
            self.notes.append(f"what ops read was not observed: {self.observer.why} (docs/capture.md, Bounds)")
            return False
        if takes_s > self.costs.budget.left_s():
            why = f"a step has about {rows:,.0f} ops, and observing what they read takes {takes_s:.1f} s of CPU time"
            self.observer.why = why
            self.costs.postponed[OBSERVED] = f"what ops read was not observed: {why} (docs/capture.md, Bounds)"
            return False
        return self.observer.start(bool(compiles()))

    def end(self, whole: bool) -> None:
        """The observed steps are over; whole: each of them trained, and all of them ran."""
        if self.observer.on and not whole:
            self._cut_short += 1
            if self._cut_short < _MOST_CUT_SHORT:
                self.costs.postponed[OBSERVED] = ""
        try:
            with self.costs.budget.spending():
                self.observer.stop(whole)
            if self.observer.file and whole:
                self.costs.budget.observed(STEPS * self.costs.rows_per_step)
        except Exception as failure:
            let_through(failure)
            said = getattr(failure, "strerror", None) or type(failure).__name__
            self.observer.why = f"the observer's output could not be kept ({said})"
        if whole and self.observer.why:
            self.notes.append(f"what ops read was not observed: {self.observer.why}")

    def passed(self) -> None:
        """A backward pass begins in an observed step."""
        with self.costs.budget.spending():
            self.observer.factors.passed()

    def look_ahead(self) -> None:
        """Looks for the script's tensors, which the observer will know again."""
        if self.costs.budget.affords_walk():
            self.observer.look()
        else:
            self.unobserved = "the script holds millions of objects, too many to search for tensors"
