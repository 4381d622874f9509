"""What a part of the loop's thread's work takes without the profiler, as a range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.step.core_waits import CoreWaits
from advisor.analyses.step.host_gaps import HostGaps
from advisor.analyses.step.phases import Phases
from advisor.analyses.step.step_parts import Part, PartOf, StepParts
from advisor.calibration.calibration import Calibration
from advisor.constants import constant
from advisor.trace.events import Category, Floats, Ints, Trace
from advisor.trace.intervals import EMPTY, Intervals, intersect, subtract, total, union

# Between two ops of a layer lie 3 to 20 µs of Python that no script can avoid; work that somebody wrote takes longer.
_LONG_GAP_NS = int(1e3 * constant("profiler.idle_python_us").value)
# What recording a part of a step was measured to cost differs by this share of it from what its ops are said to cost.
_OFF = constant("profiler.row_off").value


class Stretch(Struct, frozen=True):
    """Recorded work per step by part of the step: µs, ops, their weight (`Part.weight`), µs of long runs of Python."""

    us: tuple[float, ...]
    rows: tuple[float, ...]
    weight: tuple[float, ...]
    python_us: tuple[float, ...]

    def __add__(self, other: Stretch) -> Stretch:
        return Stretch(*(tuple(map(sum, zip(*pair, strict=True))) for pair in self.beside(other)))

    def beside(self, other: Stretch) -> Iterator[tuple[tuple[float, ...], tuple[float, ...]]]:
        """Each quantity of both, by part."""
        return zip(self.columns, other.columns, strict=True)

    def times(self, share: float) -> Stretch:
        """A part of this work."""
        return Stretch(*(tuple(share * one for one in column) for column in self.columns))

    @property
    def columns(self) -> tuple[tuple[float, ...], ...]:
        """The quantities in the order above."""
        return self.us, self.rows, self.weight, self.python_us


class Deprofiled(Struct, frozen=True, eq=False):
    """How recorded time maps to un-profiled time, if the profiler slows some work more than other work.

    Capture timed the parts of the step with and without the profiler, so its overhead in each is known. Within a part
    recording an op costs what it does among short ops, or behind long ones, in measurements; what was added beyond that
    goes by the time of ops. Ranges hold what those measurements were off by.

    python        runs of Python of 30 µs or more without an op, fetch, optimizer or communication, less the waits for a
                  core in them; empty with a device
    recorded_us   |W| per step
    plain_us      the same without the profiler; recorded_us if not known
    python_us     µs of `python` per step
    parts         the parts of the step, with and without the profiler
    row_us        what recording an op costs in a loop of short ones
    most_row_us   the most that recording one op takes: overhead beyond it has another cause, such as data that was
                  evicted from the caches
    """

    python: Intervals
    recorded_us: float
    plain_us: float
    python_us: float
    parts: tuple[Part, ...]
    python_of: tuple[float, ...]  # µs of `python` per step in each part
    part_of: PartOf  # as in StepParts
    weights: Floats  # as in StepParts
    starts_ns: Ints  # of the ops with a weight, in order
    summed: Floats  # of these, the weights of all before each, and of all
    row_us: float
    most_row_us: float

    def share(self, work: Stretch) -> tuple[float, float]:
        """(low, high) share of the un-profiled step that this work takes."""
        low, high = self.us(work)
        return min(max(low / self.plain_us, 0.0), 1.0), min(high / self.plain_us, 1.0)

    def us(self, work: Stretch) -> tuple[float, float]:
        """(low, high) µs of the un-profiled step that this work takes."""
        ends = [
            self._in_part(*one)
            for one in zip(self.parts, self.python_of, work.us, work.weight, work.python_us, strict=True)
        ]
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    def _in_part(
        self, part: Part, part_python_us: float, us: float, weight: float, python_us: float
    ) -> tuple[float, float]:
        """The range within one part: what was added, by what recording its ops costs."""
        if not us or not part.recorded_us:
            return 0.0, 0.0
        added_us = part.recorded_us - part.plain_us
        if added_us <= 0:
            return (us * part.plain_us / part.recorded_us,) * 2
        plain_us = _plain_us(part, min(part.added_us, self.row_us), part_python_us, us, weight, python_us)
        ours_us = us - plain_us
        off_us = _OFF * max(min(ours_us, added_us - ours_us), 0.0)
        return max(plain_us - off_us, 0.0), min(plain_us + off_us, us)

    def stretch(self, spans: Intervals, steps: Steps) -> Stretch:
        """The work of the loop's thread within these spans."""
        inside = [intersect(spans, part.spans) for part in self.parts]
        counted = [self._counted(one) for one in inside]
        return Stretch(
            tuple(steps.per_step_us(total(one)) for one in inside),
            tuple(rows / steps.count for rows, _ in counted),
            tuple(weight / steps.count for _, weight in counted),
            tuple(steps.per_step_us(total(intersect(one, self.python))) for one in inside),
        )

    def _counted(self, spans: Intervals) -> tuple[float, float]:
        """The number and the weight of the ops that start in these spans."""
        first, last = np.searchsorted(self.starts_ns, spans[:, 0]), np.searchsorted(self.starts_ns, spans[:, 1])
        return float((last - first).sum()), float((self.summed[last] - self.summed[first]).sum())

    def in_part(
        self, name: str, us: float, rows: float = 0.0, *, weight: float | None = None, python_us: float = 0.0
    ) -> Stretch:
        """Work in one part of the step: fetch, backward, optimizer or rest.

        weight: of its ops; None: each costs what those of that part cost on average.
        """
        found = []
        for part in self.parts:
            here = part.name == name or len(self.parts) == 1
            mean = part.weight / part.rows if part.rows else 1.0
            found.append((us, rows, rows * mean if weight is None else weight, python_us) if here else (0.0,) * 4)
        return Stretch(*zip(*found, strict=True))

    def slowed_alike(self, name: str, us: float) -> Stretch:
        """Work of an unknown number of ops, which the profiler slowed as it did the rest of that part."""
        here = next((part for part in self.parts if part.name == name or len(self.parts) == 1), None)
        rows, weight = (here.rows, here.weight) if here is not None and here.recorded_us else (0.0, 0.0)
        part = us / here.recorded_us if here is not None and here.recorded_us else 0.0
        return self.in_part(name, us, part * rows, weight=part * weight)

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        parts: StepParts,
        gaps: HostGaps,
        phases: Phases,
        calibration: Calibration,
        waits: CoreWaits,
    ) -> Deprofiled:
        """The mapping for this trace."""
        # While the loop's thread waits for autograd's own, that one's ops are no Python; beside a device nobody asks.
        python = EMPTY
        if not trace.device_work.any():
            ops = trace.events.of(Category.CPU_OP)
            elsewhere = trace.events.covered(ops)
            python = subtract(subtract(subtract(gaps.spans, phases.communication), elsewhere), waits.spans)
        python = python[python[:, 1] - python[:, 0] >= _LONG_GAP_NS]
        python = intersect(python, union(*np.concatenate([part.spans for part in parts.parts]).T))
        weighed = np.flatnonzero(parts.weights)
        return cls(
            python=python,
            recorded_us=steps.step_us,
            plain_us=sum(part.plain_us for part in parts.parts),
            python_us=steps.per_step_us(total(python)),
            parts=parts.parts,
            python_of=tuple(steps.per_step_us(total(intersect(python, part.spans))) for part in parts.parts),
            part_of=parts.part_of,
            weights=parts.weights,
            starts_ns=trace.events.start_ns[weighed],
            summed=np.append(0.0, np.cumsum(parts.weights[weighed])),
            row_us=_row_us(calibration),
            most_row_us=_most_row_us(calibration),
        )


def _row_us(calibration: Calibration) -> float:
    """What recording an op costs in a loop of short ones, on the machine of the run if it was measured there."""
    row = calibration.profiler_row_us
    return constant("profiler.short_row").value * (row.middle if row.middle is not None else row.high)


def _most_row_us(calibration: Calibration) -> float:
    """What half of the parts stay below is what a row costs within a step; other rows have more inputs to describe."""
    row = calibration.profiler_row_cold_us
    if row is None or row.middle is None:
        return constant("profiler.most_part_row_us").value
    return row.middle * constant("profiler.part_spread").value


def _plain_us(part: Part, row_us: float, part_python_us: float, us: float, weight: float, python_us: float) -> float:
    """Un-profiled µs of work in this part if each row took its time to record; what rows cannot explain goes by time.

    Python is slowed by nothing but the rows in it; where the part lost more than its ops had, it is noise.
    """
    left_us, ours_us = part.recorded_us - part.weight * row_us, max(us - weight * row_us, 0.0)
    beyond_us, ops_us = left_us - part.plain_us, left_us - part_python_us
    if beyond_us <= 0 or beyond_us > ops_us:
        return ours_us * min(part.plain_us / left_us, 1.0) if left_us > 0 else 0.0
    python_us = min(python_us, ours_us)
    return python_us + (ours_us - python_us) * (1 - beyond_us / ops_us)


def together(stretches: Sequence[Stretch]) -> Stretch:
    """The sum of these; there is at least one."""
    first, *others = stretches
    return sum(others, first)
