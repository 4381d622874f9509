"""Backward passes of the window: their engine calls in order, and the gradients that each of them stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.work.operands import dims_of
from advisor.trace.events import Category, Events, Trace
from advisor.trace.op_names import AUTOGRAD_NODE, FIRST_GRADIENT

Ints = npt.NDArray[np.int64]

NODE = AUTOGRAD_NODE
STORES = "torch::autograd::AccumulateGrad"
UPDATES = "Optimizer.step#"
# Nodes that only look at a gradient in another form, between the node that made it and the one that stores it.
_VIEWS = ("TBackward", "ViewBackward", "PermuteBackward", "TransposeBackward", "ReshapeAlias", "ExpandBackward")


@dataclass(frozen=True, slots=True)
class Store:
    """One gradient that is stored. node: row of its engine call; of: index in `Pass.nodes` of the node that made it."""

    row: int
    node: int
    of: int
    shape: str
    fresh: bool  # nothing had been stored before, or it had been dropped: there was nothing to add to


@dataclass(frozen=True, slots=True)
class Pass:
    """One backward pass: engine calls in order, those that store gradients left out, and what was stored."""

    nodes: tuple[int, ...]
    stores: tuple[Store, ...]
    start_ns: int
    end_ns: int


def passes(trace: Trace, steps: Steps, nesting: Nesting) -> list[Pass]:
    """The backward passes of the window, in order."""
    events = trace.events
    outermost = nesting.outermost
    stores = events.exactly(STORES)
    nodes = np.flatnonzero((events.named(NODE) | stores) & outermost & (steps.step_of(events.start_ns) >= 0))
    if not len(nodes):
        return []
    store_of = {int(nesting.outer_op[row]): row for row in np.flatnonzero(stores).tolist()}
    added = nesting.ancestor(stores)[events.exactly("aten::add_", "aten::add")]
    adding = set(added[added >= 0].tolist())
    number = np.searchsorted(_marks(trace, steps, nesting), events.start_ns[nodes])
    first = begins(events, nodes)
    first[1:] |= np.diff(number) > 0
    bounds = [*np.flatnonzero(first).tolist(), len(nodes)]
    return [_pass(events, nodes[low:stop].tolist(), store_of, adding) for low, stop in pairwise(bounds)]


def _pass(events: Events, rows: Sequence[int], store_of: dict[int, int], adding: set[int]) -> Pass:
    nodes: list[int] = []
    stores = []
    maker = -1
    for row in rows:
        if row in store_of:
            stored = store_of[row]
            dims = dims_of(events, stored)
            stores.append(Store(stored, row, maker, str(dims[0]) if dims else "", stored not in adding))
            continue
        nodes.append(row)
        if maker < 0 or not any(view in events.text(row) for view in _VIEWS):
            maker = len(nodes) - 1
    return Pass(tuple(nodes), tuple(stores), int(events.start_ns[rows[0]]), int(events.end_ns[rows[-1]]))


def begins(events: Events, nodes: Ints) -> npt.NDArray[np.bool_]:
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
    recorded = ops & (events.sequence >= 0) & ~events.named(NODE) & (events.forward_thread <= 0)
    updates = events.of(Category.ANNOTATION) & events.named(UPDATES)
    found: Ints = np.sort(events.start_ns[recorded | updates | (ops & events.exactly(FIRST_GRADIENT))])
    return found


def inside(events: Events, row: int) -> list[int]:
    """The rows inside a row of the same thread, in order of start."""
    ends = events.end_ns
    rows = np.arange(row + 1, int(np.searchsorted(events.start_ns, ends[row], side="left")))
    found: list[int] = rows[(events.thread[rows] == events.thread[row]) & (ends[rows] <= ends[row])].tolist()
    return found
