"""Backward passes that compute again what another one had: those of a loss that was computed again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from advisor.api import FIRST_GRADIENT, Reused, Trace, backward_passes, dataclass

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PassesAgain:
    """Passes that need not run, of losses that were computed again.

    fills  for each the op of the loop that filled its first gradient;  nodes: all of their nodes, those that store
           gradients among them
    """

    fills: Ints
    nodes: Ints


def passes_again(trace: Trace, reused: Reused, pairs: Ints) -> PassesAgain:
    """The passes behind ops that computed a value again. pairs: (n, 2) such an op, and the earlier one.

    From one value, and a gradient that `backward()` filled, two passes through the same nodes compute the same.
    """
    events = trace.events
    numbered = np.flatnonzero(events.named(backward_passes.NODE) & (events.sequence >= 0))
    if not len(numbered) or not len(pairs):
        return PassesAgain(numbered[:0], numbered[:0])
    bounds = [*np.flatnonzero(backward_passes.begins(events, numbered)).tolist(), len(numbered)]
    passes = {low: numbered[low:stop] for low, stop in pairwise(bounds)}
    roots = np.array(list(passes))
    fills = _fills(trace, reused, numbered[roots])
    recorders = _recorders(trace, reused, numbered[roots])
    root_of = {row: at for at, row in enumerate(recorders.tolist()) if row >= 0 and fills[at] >= 0}
    found = {}
    for again, first in pairs.tolist():
        mine, theirs = root_of.get(again, -1), root_of.get(first, -1)
        if mine < 0 or theirs < 0 or mine == theirs:
            continue
        one, other = passes[int(roots[mine])], passes[int(roots[theirs])]
        if np.array_equal(events.name[one], events.name[other]):
            found[int(fills[mine])] = _with_stores(trace, one)
    nodes = np.unique(np.concatenate(list(found.values()))) if found else numbered[:0]
    return PassesAgain(np.array(sorted(found), np.int64), nodes)


def _fills(trace: Trace, reused: Reused, roots: Ints) -> Ints:
    """The op that filled the gradient of each root, -1 where the last op of the loop before it is another: its own."""
    events = trace.events
    ops = reused.ops
    at = np.searchsorted(events.end_ns[ops], events.start_ns[roots], side="right") - 1
    last = ops[np.maximum(at, 0)]
    fills: Ints = np.where((at >= 0) & events.exactly(FIRST_GRADIENT)[last], last, -1)
    return fills


def _recorders(trace: Trace, reused: Reused, nodes: Ints) -> Ints:
    """The op of the loop that recorded each node, -1 where it is not known: the last whose count is not beyond it."""
    events = trace.events
    ops = reused.ops[(events.sequence[reused.ops] >= 0) & (events.forward_thread[reused.ops] <= 0)]
    if not len(ops):
        return np.full(len(nodes), -1, np.int64)
    # Of ops with one count all but the last recorded nothing.
    at = np.searchsorted(events.sequence[ops], events.sequence[nodes], side="right") - 1
    recorder: Ints = np.where(at >= 0, ops[np.maximum(at, 0)], -1)
    return recorder


def _with_stores(trace: Trace, nodes: Ints) -> Ints:
    """The nodes of a pass with those between and right behind them that store gradients, which have no number."""
    events = trace.events
    others = np.flatnonzero(
        events.named(backward_passes.NODE) & (events.sequence < 0) & (events.thread == events.thread[nodes[0]])
    )
    following = np.flatnonzero(
        events.named(backward_passes.NODE) & (events.sequence >= 0) & (events.thread == events.thread[nodes[0]])
    )
    first, last = int(events.start_ns[nodes[0]]), int(events.start_ns[nodes[-1]])
    after = following[events.start_ns[following] > last]
    stop = int(events.start_ns[after[0]]) if len(after) else int(np.iinfo(np.int64).max)
    stores = others[(events.start_ns[others] > first) & (events.start_ns[others] < stop)]
    return np.union1d(nodes, stores)
