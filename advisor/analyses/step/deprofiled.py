"""What a part of the loop's thread's work takes without the profiler, as a range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.step.core_waits import CoreWaits
from advisor.analyses.step.host_gaps import HostGaps
from advisor.analyses.step.phases import Phases
from advisor.analyses.step.step_parts import Part, PartOf, StepParts
from advisor.calibration.calibration import Calibration
from advisor.constants import constant
from advisor.trace.events import Category, Ints, Trace
from advisor.trace.intervals import EMPTY, Intervals, intersect, starts_in, subtract, total, union

# Between two ops of a layer lie 3 to 20 µs of Python that no script can avoid; work that somebody wrote takes longer.
_LONG_GAP_NS = int(1e3 * constant("profiler.idle_python_us").value)


class Stretch(Struct, frozen=True):
    """Recorded work per step by part of the step: µs, the ops recorded in it, µs of long runs of Python."""

    us: tuple[float, ...]
    rows: tuple[float, ...]
    python_us: tuple[float, ...]

    def __add__(self, other: Stretch) -> Stretch:
        return Stretch(*(tuple(map(sum, zip(*pair, strict=True))) for pair in zip(self._all, other._all, strict=True)))

    def times(self, share: float) -> Stretch:
        """A part of this work."""
        return Stretch(*(tuple(share * one for one in column) for column in self._all))

    @property
    def _all(self) -> tuple[tuple[float, ...], ...]:
        return self.us, self.rows, self.python_us


class Deprofiled(Struct, frozen=True, eq=False):
    """How recorded time maps to un-profiled time, if the profiler slows some work more than other work.

    Capture timed the parts of the step with and without the profiler, so its overhead in each is known. Within a part,
    the overhead may be proportional to the time of ops or, up to the cost of recording them, to their number: these are
    the two ends of every range.

    python        runs of Python of 30 µs or more without an op, fetch, optimizer or communication, less the waits for a
                  core in them; empty with a device
    recorded_us   |W| per step
    plain_us      the same without the profiler; recorded_us if not known
    python_us     µs of `python` per step
    rows          recorded ops per step
    parts         the parts of the step, with and without the profiler
    most_row_us   the most that recording one op takes: overhead beyond it has another cause, such as data that was
                  evicted from the caches
    """

    python: Intervals
    recorded_us: float
    plain_us: float
    python_us: float
    rows: float
    parts: tuple[Part, ...]
    python_of: tuple[float, ...]  # µs of `python` per step in each part
    part_of: PartOf  # as in StepParts
    most_row_us: float

    def share(self, work: Stretch) -> tuple[float, float]:
        """(low, high) share of the un-profiled step that this work takes."""
        low, high = self.us(work)
        return min(max(low / self.plain_us, 0.0), 1.0), min(high / self.plain_us, 1.0)

    def us(self, work: Stretch) -> tuple[float, float]:
        """(low, high) µs of the un-profiled step that this work takes."""
        ends = [
            self._in_part(*one)
            for one in zip(self.parts, self.python_of, work.us, work.rows, work.python_us, strict=True)
        ]
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    def _in_part(
        self, part: Part, part_python_us: float, us: float, rows: float, python_us: float
    ) -> tuple[float, float]:
        """The range within one part: what was added went to its ops by their time, or by their number."""
        if not us or not part.recorded_us:
            return 0.0, 0.0
        ratio = part.plain_us / part.recorded_us
        # Python is slowed by nothing but the rows in it; where the part lost more than its ops had, it is noise.
        left = 1 - (part.recorded_us - part.plain_us) / max(part.recorded_us - part_python_us, 1e-9)
        alike = python_us + (us - python_us) * left if 0 < left <= 1 else us * ratio
        if ratio >= 1:
            return alike, alike
        numbered = _numbered(part, min(part.row_us, self.most_row_us), part_python_us, us, rows, python_us)
        return min(alike, numbered), max(alike, numbered)

    def stretch(self, spans: Intervals, starts_ns: Ints, steps: Steps) -> Stretch:
        """The work within these spans. starts_ns: starts of the ops of the loop's thread in them."""
        return Stretch(
            tuple(steps.per_step_us(total(intersect(spans, part.spans))) for part in self.parts),
            tuple(float(starts_in(starts_ns, part.spans).sum()) / steps.count for part in self.parts),
            tuple(
                steps.per_step_us(total(intersect(intersect(spans, part.spans), self.python))) for part in self.parts
            ),
        )

    def in_part(self, name: str, us: float, rows: float = 0.0, python_us: float = 0.0) -> Stretch:
        """Work in one part of the step: fetch, backward, optimizer or rest."""
        here = [part.name == name or len(self.parts) == 1 for part in self.parts]
        return Stretch(*(tuple(one * at for at in here) for one in (us, rows, python_us)))

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
        return cls(
            python=python,
            recorded_us=steps.step_us,
            plain_us=sum(part.plain_us for part in parts.parts),
            python_us=steps.per_step_us(total(python)),
            rows=sum(part.rows for part in parts.parts),
            parts=parts.parts,
            python_of=tuple(steps.per_step_us(total(intersect(python, part.spans))) for part in parts.parts),
            part_of=parts.part_of,
            most_row_us=_most_row_us(calibration),
        )


def _most_row_us(calibration: Calibration) -> float:
    """What half of the parts stay below is what a row costs within a step; other rows have more inputs to describe."""
    row = calibration.profiler_row_cold_us
    if row is None or row.middle is None:
        return constant("profiler.most_part_row_us").value
    return row.middle * constant("profiler.part_spread").value


def _numbered(part: Part, row_us: float, part_python_us: float, us: float, rows: float, python_us: float) -> float:
    """Un-profiled µs of work in this part if each row took time to record; what rows cannot explain goes by time."""
    left_us, ours_us = part.recorded_us - part.rows * row_us, max(us - rows * row_us, 0.0)
    beyond_us, ops_us = left_us - part.plain_us, left_us - part_python_us
    if beyond_us <= 0 or beyond_us > ops_us:
        return ours_us * min(part.plain_us / left_us, 1.0) if left_us > 0 else 0.0
    python_us = min(python_us, ours_us)
    return python_us + (ours_us - python_us) * (1 - beyond_us / ops_us)


def together(stretches: Sequence[Stretch]) -> Stretch:
    """The sum of these; there is at least one."""
    first, *others = stretches
    return sum(others, first)
