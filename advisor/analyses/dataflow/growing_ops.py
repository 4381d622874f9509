"""Ops whose inputs grow by the same amount with every step: they work on all that was kept so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.analyses.base.steps import Steps
from advisor.analyses.work.op_work import element_counts
from advisor.computed import Missing
from advisor.trace.events import Category, Events, Trace

Ints = npt.NDArray[np.int64]

# Fewer steps rise by chance; with equal amounts each time five do not.
_LEAST_STEPS = 5
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::conv", "aten::matmul")


@dataclass(frozen=True, slots=True, eq=False)
class GrowingOps:
    """Ops of the window whose largest input holds more numbers in each step, by equal amounts.

    names     their names, by time
    rows      the rows of these ops that grow, one or more in each step
    first, last   numbers in the largest of these inputs in the first and in the last step
    """

    names: tuple[str, ...]
    rows: Ints
    first: int
    last: int

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> GrowingOps:
        """The ops; none where a matrix product grows too: then it is the batch. Missing without shapes or steps."""
        events = trace.events
        if steps.count < _LEAST_STEPS or len(steps.spans) != steps.count:
            raise Missing("the trace has fewer than five whole steps, too few to see what grows from step to step")
        step = steps.step_of(events.start_ns)
        rows = np.flatnonzero(events.of(Category.CPU_OP) & (events.dims >= 0) & (step >= 0))
        if not len(rows):
            raise Missing("shapes were not recorded (record_shapes=True)")
        held = np.array([sum(element_counts(text)) for text in events.dims_table], np.int64)[events.dims[rows]]
        present = np.bincount(events.name[rows]) > 0
        names, name = np.flatnonzero(present), (np.cumsum(present) - 1)[events.name[rows]]
        largest = np.zeros((len(names), steps.count), np.int64)
        np.maximum.at(largest, (name, step[rows]), held)
        more = np.diff(largest, axis=1)
        grows = (more > 0).all(axis=1) & (more == more[:, :1]).all(axis=1)
        texts = [events.text(int(rows[np.argmax(name == number)])) for number in np.flatnonzero(grows)]
        if not texts or any(text.startswith(_PRODUCTS) for text in texts):
            return cls((), np.zeros(0, np.int64), 0, 0)
        mine = rows[grows[name] & (held == largest[name, step[rows]])].astype(np.int64)
        return cls(_by_time(events, mine), mine, int(largest[grows, 0].max()), int(largest[grows, -1].max()))


def _by_time(events: Events, rows: Ints) -> tuple[str, ...]:
    spent: dict[str, int] = {}
    for row in rows.tolist():
        spent[events.text(row)] = spent.get(events.text(row), 0) + int(events.dur_ns[row])
    return tuple(sorted(spent, key=lambda text: -spent[text]))
