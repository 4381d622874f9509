"""Who asked for each communication of a rank: the op of `c10d::` (else `nccl:`) behind its kernel or its host row."""

from __future__ import annotations

import functools
import json
import math
from collections import defaultdict, deque

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import communication_rows
from advisor.analyses.base.links import Links
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.breakdown import Breakdown
from advisor.trace.events import Category, Events, Ints, Trace

_BARRIER = "c10d::barrier"


class Asked(Struct, frozen=True, eq=False):
    """Communication that counts to steps: kernels where the rank has a device, else the host's own rows (gloo, MPI).

    rows  event rows by start;  step: of each;  op: row of the op that asked for it, -1 where the trace does not tell
    """

    rows: Ints
    step: Ints
    op: Ints

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, breakdown: Breakdown, links: Links) -> Asked:
        """The communication of this rank; empty where there is none."""
        events = trace.events
        named = communication_rows(events)
        if breakdown.on_device:
            rows = np.flatnonzero(named & events.of(Category.KERNEL) & links.inside)
            return cls(rows, links.step[rows], _launching(events, links.launch[rows]))
        rows = np.flatnonzero(named & events.of(Category.ANNOTATION))
        step = steps.step_of(events.start_ns[rows])
        op = _queued(events, rows)[step >= 0]
        return cls(rows[step >= 0], step[step >= 0], op)


def _launching(events: Events, launches: Ints) -> Ints:
    """For each launch the row of `c10d::…` (else `nccl:…`) that encloses it on its thread; -1 where there is none."""
    found = np.full(len(launches), -1, np.int64)
    host = events.of(Category.CPU_OP, Category.ANNOTATION)
    for pattern in ("nccl:", "c10d::"):
        found = _enclosing(events, launches, np.flatnonzero(host & events.named(pattern)), found)
    return found


def _enclosing(events: Events, launches: Ints, rows: Ints, found: Ints) -> Ints:
    """`found`, with the last of these rows that encloses each launch where one does."""
    result = found.copy()
    for thread in np.unique(events.thread[rows]):
        mine = rows[events.thread[rows] == thread]
        asked = np.flatnonzero((launches >= 0) & (events.thread[np.maximum(launches, 0)] == thread))
        if not len(asked):
            continue
        at = np.searchsorted(events.start_ns[mine], events.start_ns[launches[asked]], side="right") - 1
        inside = (at >= 0) & (events.end_ns[mine[np.maximum(at, 0)]] >= events.start_ns[launches[asked]])
        result[asked[inside]] = mine[at[inside]]
    return result


def _queued(events: Events, rows: Ints) -> Ints:
    """For each host row the op that put it into its queue: the first one before it, of its size, that no other took.

    A queue is worked off in order, on threads of its own; an op names all of its tensors and the row one of them.
    """
    ops = np.flatnonzero(events.of(Category.CPU_OP) & events.named("c10d::") & ~events.named("_c10d_functional"))
    waiting: dict[int, deque[int]] = defaultdict(deque)
    for op in ops.tolist():
        # A barrier exchanges no tensor; its op names the device's by an empty one.
        named = [] if events.text(op) == _BARRIER else inputs(events, op)
        for size in {elements(shapes) for shapes in named} or {0}:
            waiting[size].append(op)
    found = np.full(len(rows), -1, np.int64)
    taken: set[int] = set()
    for at, row in enumerate(rows.tolist()):
        queue = waiting[next(map(elements, inputs(events, row)), 0)]
        while queue and queue[0] in taken:
            queue.popleft()
        if queue and events.start_ns[queue[0]] <= events.start_ns[row]:
            found[at] = queue.popleft()
            taken.add(int(found[at]))
    return found


def inputs(events: Events, row: int) -> list[list[list[int]]]:
    """Each input that a row's `Input Dims` state, as a list of shapes: a tensor has one, a list of tensors several."""
    return inputs_of(dims_of(events, row))


def dims_of(events: Events, row: int) -> str:
    """A row's `Input Dims`; empty where it has none."""
    dims = int(events.dims[row])
    return events.dims_table[dims] if dims >= 0 else ""


@functools.lru_cache(maxsize=4096)
def inputs_of(dims: str) -> list[list[list[int]]]:
    """The same of the text of `Input Dims`. Collectives are repeated: each text is read once."""
    try:
        found = json.loads(dims)
    except ValueError:
        return []
    lists = [one for one in found if isinstance(one, list)] if isinstance(found, list) else []
    nested = [one if one and all(isinstance(part, list) for part in one) else [one] for one in lists]
    return [shapes for shapes in nested if elements(shapes)]


def elements(shapes: list[list[int]]) -> int:
    """Elements of all of these shapes together."""
    return sum(math.prod(shape) for shape in shapes if shape and all(isinstance(n, int) for n in shape))


def scalar(dims: str) -> list[int]:
    """One element where `Input Dims` state a single tensor without dimensions; else nothing."""
    return [1] if dims == "[[]]" else []
