"""Pauses between ops that are long because the loop's thread had no core, told from steps that run the same ops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.capture.record import RankRecord
from advisor.trace.events import Category, Ints, Trace
from advisor.trace.intervals import EMPTY, Intervals, union

# Of so many steps alike the median is one that a wait in one of them does not move.
_ALIKE = 3


class CoreWaits(Struct, frozen=True, eq=False):
    """Where the loop's thread waited for a core while it was in no op, in the profiled steps.

    The system tells for how long the thread waited in the window, not where: a pause of some microseconds between two
    ops then lasts as long as another process has the core. A step waits at other places than the next one. So each op
    and each pause between two ops of steps that run the same ops takes what it takes in the median one of them, and
    what is beyond that is where the wait was; if all of it together is longer than the wait, each is so in part.

    spans  the end of each such pause;  empty where the wait is not known, or fewer than three steps are alike
    """

    spans: Intervals

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting, record: RankRecord | None) -> CoreWaits:
        """The waits of this rank's loop."""
        vitals = record.vitals if record else None
        if vitals is None or not vitals.window_waited:
            return cls(EMPTY)
        found = [_beyond(times, bounds) for times, bounds in _alike(trace, steps, nesting)]
        beyond_ns = sum(float(longer.sum()) + ops_ns for longer, _, ops_ns in found)
        if not beyond_ns:
            return cls(EMPTY)
        share = min(vitals.window_waited * steps.window_ns / beyond_ns, 1.0)
        ends = np.concatenate([ends for _, ends, _ in found])
        starts = ends - np.concatenate([(share * longer).astype(np.int64) for longer, _, _ in found])
        return cls(union(starts[starts < ends], ends[starts < ends]))


def _alike(trace: Trace, steps: Steps, nesting: Nesting) -> list[tuple[npt.NDArray[np.int64], Intervals]]:
    """Groups of steps with the same ops in the same order: (steps, ops, start and end), and bounds of these steps."""
    events = trace.events
    ops = events.of(Category.CPU_OP) & nesting.outermost & (events.thread == steps.main_thread)
    rows = np.flatnonzero(ops)
    step = steps.step_of(events.start_ns)[rows]
    groups: dict[bytes, list[tuple[Ints, Ints]]] = {}
    for index, bounds in enumerate(steps.spans):
        mine = rows[step == index]
        mine = mine[events.end_ns[mine] <= bounds[1]]
        groups.setdefault(events.name[mine].tobytes(), []).append((mine, bounds))
    return [
        (
            np.stack([np.column_stack((events.start_ns[mine], events.end_ns[mine])) for mine, _ in group]),
            np.stack([bounds for _, bounds in group]),
        )
        for group in groups.values()
        if len(group) >= _ALIKE
    ]


def _beyond(times: npt.NDArray[np.int64], bounds: Intervals) -> tuple[Ints, Ints, float]:
    """By how much each pause of these steps is longer than the same one usually is, when it ends; that of all ops."""
    ends = np.concatenate((times[:, :, 0], bounds[:, 1:]), axis=1)
    pauses = ends - np.concatenate((bounds[:, :1], times[:, :, 1]), axis=1)
    longer = _longer(pauses)
    return longer.ravel(), ends.ravel(), float(_longer(times[:, :, 1] - times[:, :, 0]).sum())


def _longer(took: Ints) -> Ints:
    """By how much each is longer than the lower median of its column."""
    usual = np.sort(took, axis=0)[(len(took) - 1) // 2]
    found: Ints = np.maximum(took - usual, 0)
    return found
