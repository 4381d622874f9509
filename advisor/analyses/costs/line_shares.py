"""Which lines of the user's code the un-profiled step spends its time in."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.costs.line_costs import LineCost, LineCosts, Place
from advisor.analyses.lines.lines import Lines
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.deprofiled import Deprofiled, Stretch, together
from advisor.analyses.step.step_parts import BACKWARD, FETCH
from advisor.model import LineShare
from advisor.trace.intervals import Intervals

# Lines of less are noise beside what profiling adds; a page has room for so many.
LEAST_SHARE, MOST = 0.01, 20


class LineShares(Struct, frozen=True, eq=False):
    """Lines that take a hundredth of the step or more, most expensive first. Missing where `LineCosts` is."""

    lines: tuple[LineShare, ...]

    @classmethod
    def compute(cls, costs: LineCosts, lines: Lines, breakdown: Breakdown, deprofiled: Deprofiled) -> LineShares:
        """The lines of this rank."""
        called = _callers_of_backward(lines, breakdown.intervals["backward"])
        waiting = {_place(line): line.parts["backward"] for line in costs.lines if _place(line) in called}
        passed = _Backward(
            sum(waiting.values()),
            sum(line.backward_us for line in costs.lines),
            sum(line.backward_rows for line in costs.lines),
            sum(line.backward_weight for line in costs.lines),
        )
        found = []
        for line in costs.lines:
            own = _less(line.work, passed.of_caller(deprofiled, waiting.get(_place(line), 0.0)))
            fetched_rows = max(line.rows - sum(line.work.rows), 0.0)
            fetched = deprofiled.in_part(FETCH, line.parts["input"], fetched_rows)
            backward = passed.of_line(deprofiled, line)
            work = together([own, fetched, backward])
            low, high = deprofiled.share(work)
            part = sum(deprofiled.share(backward)) / (low + high) if low + high else 0.0
            found.append(LineShare(line.source, low, high, min(part, 1.0), line.visits, sum(work.rows)))
        found.sort(key=lambda line: -(line.low + line.high))
        return cls(tuple(line for line in found if line.high >= LEAST_SHARE)[:MOST])


class _Backward(Struct, frozen=True):
    """The backward pass, recorded per step: what the lines that call it wait, what is known of who caused it."""

    waited_us: float
    caused_us: float
    caused_rows: float
    caused_weight: float

    def of_caller(self, deprofiled: Deprofiled, waited_us: float) -> Stretch:
        """What a line that calls it does not spend itself; nothing where nobody is known to have caused it."""
        if not self.caused_us or not waited_us:
            return deprofiled.in_part(BACKWARD, 0.0)
        part = waited_us / self.waited_us
        return deprofiled.in_part(BACKWARD, waited_us, part * self.caused_rows, weight=part * self.caused_weight)

    def of_line(self, deprofiled: Deprofiled, line: LineCost) -> Stretch:
        """What a line's forward operators caused, no more in all than was waited."""
        part = min(self.waited_us / self.caused_us, 1.0) if self.caused_us else 0.0
        rows, weight = part * line.backward_rows, part * line.backward_weight
        return deprofiled.in_part(BACKWARD, part * line.backward_us, rows, weight=weight)


def _place(line: LineCost) -> Place:
    return line.source.place


def _less(work: Stretch, other: Stretch) -> Stretch:
    """Work without other work, never below nothing."""
    return Stretch(*(tuple(max(a - b, 0.0) for a, b in zip(*pair, strict=True)) for pair in work.beside(other)))


def _callers_of_backward(lines: Lines, backward: Intervals) -> set[Place]:
    """The lines that start a backward pass: their time in it belongs to the lines whose operators it differentiates."""
    if not len(lines.spans) or not len(backward):
        return set()
    at = np.searchsorted(lines.spans[:, 0], backward[:, 0], side="right") - 1
    sources = {int(lines.span_source[span]) for span in at.tolist() if span >= 0}
    return {(lines.sources[source].file, lines.sources[source].line) for source in sources}
