"""Ops that grow by the same amount with every step: in what they work on, or in how often they run.

Inputs that grow hold all that was kept so far; calls that grow are made for each thing that was registered or kept.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.work.op_work import element_counts
from advisor.computed import Missing
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.numbers import distinct, distinct_pairs

# Fewer steps rise by chance; with equal amounts each time five do not.
LEAST_STEPS = 5
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::conv", "aten::matmul")


class GrowingOps(Struct, frozen=True, eq=False):
    """Ops whose largest input grows by equal amounts in each step; else those called more often.

    names     their names, by time
    rows      the events of these ops that grow, one or more in each step; if calls grow, all of them
    first, last   elements of the largest of these inputs in the first and last step; or number of calls of names[0]
    calls     whether it is the number of calls that grows
    """

    names: tuple[str, ...]
    rows: Ints
    first: int
    last: int
    calls: bool = False

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> GrowingOps:
        """The ops; none if a matrix product grows, too: then the batch grows. Missing without shapes or steps."""
        events = trace.events
        if steps.count < LEAST_STEPS or len(steps.spans) != steps.count:
            raise Missing("the trace has fewer than five complete steps, too few to see what grows from step to step")
        step = steps.step_of(events.start_ns)
        rows = np.flatnonzero(events.of(Category.CPU_OP) & (events.dims >= 0) & (step >= 0))
        if not len(rows):
            raise Missing("shapes were not recorded (record_shapes=True)")
        rows = rows[_shapes_enough(events, rows, steps.count)[events.name[rows]]]
        seen = distinct(events.dims[rows], len(events.dims_table))
        numbers = np.zeros(len(events.dims_table), np.int64)
        numbers[seen] = [sum(element_counts(events.dims_table[dims])) for dims in seen.tolist()]
        held = numbers[events.dims[rows]]
        present = np.bincount(events.name[rows]) > 0
        names, name = np.flatnonzero(present), (np.cumsum(present) - 1)[events.name[rows]]
        largest = np.zeros((len(names), steps.count), np.int64)
        np.maximum.at(largest, (name, step[rows]), held)
        more = np.diff(largest, axis=1)
        grows = (more > 0).all(axis=1) & (more == more[:, :1]).all(axis=1)
        texts = [events.text(int(rows[np.argmax(name == number)])) for number in np.flatnonzero(grows)]
        if any(text.startswith(PRODUCTS) for text in texts):
            return cls((), np.zeros(0, np.int64), 0, 0)
        if not texts:
            return cls._by_calls(events, np.flatnonzero(events.of(Category.CPU_OP) & (step >= 0)), step, steps.count)
        mine = rows[grows[name] & (held == largest[name, step[rows]])].astype(np.int64)
        return cls(_by_time(events, mine), mine, int(largest[grows, 0].max()), int(largest[grows, -1].max()))

    @classmethod
    def _by_calls(cls, events: Events, rows: Ints, step: Ints, steps: int) -> GrowingOps:
        """Ops that run more often in each step than in the one before, by equal amounts; none where products do."""
        calls = np.zeros((len(events.names), steps), np.int64)
        np.add.at(calls, (events.name[rows], step[rows]), 1)
        more = np.diff(calls, axis=1)
        grows = (more > 0).all(axis=1) & (more == more[:, :1]).all(axis=1)
        if any(events.names[name].startswith(PRODUCTS) for name in np.flatnonzero(grows)):
            grows[:] = False
        mine = rows[grows[events.name[rows]]].astype(np.int64)
        names = _by_time(events, mine)
        of = events.names.index(names[0]) if names else 0
        return cls(names, mine, int(calls[of, 0]), int(calls[of, -1]), calls=True)


def _shapes_enough(events: Events, rows: Ints, steps: int) -> Mask:
    """Which names have ops of a shape for each step but the first, in which what grows may be absent."""
    pairs, _ = distinct_pairs(events.name[rows], events.dims[rows])
    return np.bincount(pairs[:, 0], minlength=len(events.names)) >= steps - 1


def _by_time(events: Events, rows: Ints) -> tuple[str, ...]:
    spent: dict[str, int] = {}
    for row in rows.tolist():
        spent[events.text(row)] = spent.get(events.text(row), 0) + int(events.dur_ns[row])
    return tuple(sorted(spent, key=lambda text: -spent[text]))
