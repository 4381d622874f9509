"""Backward passes of the window: their engine calls in order, and the gradients that each of them stores."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.sampled_steps import spread
from advisor.analyses.base.steps import Steps
from advisor.analyses.work.operands import dims_of
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.op_names import AUTOGRAD_NODE, FIRST_GRADIENT, GRADIENT_STORE

T = TypeVar("T")

UPDATES = "Optimizer.step#"
# Nodes that only look at a gradient in another form, between the node that made it and the one that stores it.
_VIEWS = ("TBackward", "ViewBackward", "PermuteBackward", "TransposeBackward", "ReshapeAlias", "ExpandBackward")


class Store(Struct, frozen=True):
    """One gradient that is stored. node: row of its engine call; of: index in `Pass.nodes` of the node that made it."""

    row: int
    node: int
    of: int
    shape: str
    fresh: bool  # nothing had been stored before, or it had been dropped: there was nothing to add to


class Pass(Struct, frozen=True):
    """One backward pass: engine calls in order, those that store gradients left out, and what was stored."""

    nodes: tuple[int, ...]
    stores: tuple[Store, ...]
    start_ns: int
    end_ns: int


class BackwardPasses(Struct, frozen=True, eq=False, dict=True):
    """The backward passes of the window, in order: `all`, and for a long window `some`, those of twenty steps."""

    trace: Trace
    steps: Steps
    nesting: Nesting

    @cached_property
    def all(self) -> list[Pass]:
        """Every pass of the window."""
        return _passes(self.trace, self.steps, self.nesting, np.arange(self.steps.count))

    @cached_property
    def some(self) -> list[Pass]:
        """The passes of twenty steps spread over the window; all where it has no more."""
        chosen = spread(self.steps.count)
        return self.all if len(chosen) == self.steps.count else _passes(self.trace, self.steps, self.nesting, chosen)

    def seen(self, find: Callable[[list[Pass]], T]) -> T:
        """What `find` finds in all passes, or in `some` if it finds nothing there, as in most loops."""
        found = find(self.some)
        return find(self.all) if found and self.some is not self.all else found

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting) -> BackwardPasses:
        """The passes of a trace, gone through when they are asked for."""
        return cls(trace, steps, nesting)


def _passes(trace: Trace, steps: Steps, nesting: Nesting, chosen: Ints) -> list[Pass]:
    """The backward passes of these steps, in order."""
    events = trace.events
    outermost = nesting.outermost
    stores = events.exactly(GRADIENT_STORE)
    nodes = np.flatnonzero((events.named(AUTOGRAD_NODE) | stores) & outermost)
    nodes = nodes[np.isin(steps.step_of(events.start_ns)[nodes], chosen)]
    if not len(nodes):
        return []
    store_of = {int(nesting.outer_op[row]): row for row in np.flatnonzero(stores).tolist()}
    added = nesting.ancestor(stores)[events.exactly("aten::add_", "aten::add")]
    adding = set(added[added >= 0].tolist())
    number = np.searchsorted(_marks(trace, steps, nesting), events.start_ns[nodes])
    first = begins(events, nodes)
    first[1:] |= np.diff(number) > 0
    bounds = [*np.flatnonzero(first).tolist(), len(nodes)]
    made = _Made(events, store_of, adding, events.named(*_VIEWS).take(nodes).tolist())
    return [made.into_pass(nodes, low, stop) for low, stop in pairwise(bounds)]


class _Made:
    """Makes passes out of their rows."""

    def __init__(self, events: Events, store_of: dict[int, int], adding: set[int], views: list[bool]) -> None:
        self._events, self._store_of, self._adding, self._views = events, store_of, adding, views
        self._shapes: dict[int, str] = {}  # text of equal shapes is made once

    def into_pass(self, found: Ints, low: int, stop: int) -> Pass:
        """The pass of the rows low to stop - 1 of all that were found."""
        events, store_of = self._events, self._store_of
        nodes: list[int] = []
        stores = []
        maker = -1
        for row, view in zip(found[low:stop].tolist(), self._views[low:stop], strict=True):
            if row in store_of:
                stored = store_of[row]
                stores.append(Store(stored, row, maker, self._shape(stored), stored not in self._adding))
                continue
            nodes.append(row)
            if maker < 0 or not view:
                maker = len(nodes) - 1
        return Pass(tuple(nodes), tuple(stores), int(events.start_ns[found[low]]), int(events.end_ns[found[stop - 1]]))

    def _shape(self, row: int) -> str:
        index = int(self._events.dims[row])
        if index not in self._shapes:
            dims = dims_of(self._events, row)
            self._shapes[index] = str(dims[0]) if dims else ""
        return self._shapes[index]


def begins(events: Events, nodes: Ints) -> Mask:
    """Whether a pass begins at each engine call by its number: within a pass the nodes of later ops come first."""
    numbered = np.flatnonzero(events.sequence[nodes] >= 0)
    rows = nodes[numbered]
    same = (events.thread[rows][1:] == events.thread[rows][:-1]) & (
        events.forward_thread[rows][1:] == events.forward_thread[rows][:-1]
    )
    found = np.zeros(len(nodes), bool)
    found[numbered[1:][same & (np.diff(events.sequence[rows]) >= 0)]] = True
    found[0] = True
    return found


def _marks(trace: Trace, steps: Steps, nesting: Nesting) -> Ints:
    """When something else than a backward pass begins on the loop's thread, ns: recorded ops, steps, a new root."""
    events = trace.events
    ops = events.of(Category.CPU_OP) & nesting.outermost & (events.thread == steps.main_thread)
    recorded = ops & (events.sequence >= 0) & ~events.named(AUTOGRAD_NODE) & (events.forward_thread <= 0)
    updates = events.of(Category.ANNOTATION) & events.named(UPDATES)
    found: Ints = events.start_ns[recorded | updates | (ops & events.exactly(FIRST_GRADIENT))]  # all rows are in order
    return found


def inside(events: Events, row: int) -> list[int]:
    """The rows inside a row of the same thread, in order of start."""
    ends = events.end_ns
    rows = np.arange(row + 1, int(np.searchsorted(events.start_ns, ends[row], side="left")))
    found: list[int] = rows[(events.thread[rows] == events.thread[row]) & (ends[rows] <= ends[row])].tolist()
    return found
