"""Which host row encloses which: the call tree of each thread, from times alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.trace.events import Category, Events, Ints, Mask, Trace

HOST_ROWS = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME)


@dataclass(frozen=True, slots=True, eq=False)
class Nesting:
    """The tree of ops, annotations and runtime calls on each thread. All columns have one entry per event.

    parent    the innermost enclosing row of the same thread, -1 where there is none (and for all other categories)
    self_ns   duration that is in no child, ns
    outer_op  the outermost op around a row without an annotation in between: what the user's line called; -1 where none
    holders   the rows that are the parent of another
    """

    parent: Ints
    self_ns: Ints
    outer_op: Ints
    holders: Ints

    @classmethod
    def compute(cls, trace: Trace) -> Nesting:
        """The tree of a trace."""
        events = trace.events
        parent = parents(events, events.of(*HOST_ROWS))
        child = np.flatnonzero(parent >= 0)
        inside = np.bincount(parent[child], weights=events.dur_ns[child], minlength=len(events)).astype(np.int64)
        return cls(parent, np.maximum(events.dur_ns - inside, 0), _outer_ops(events, parent), _holders(parent))

    def ancestor(self, found: Mask) -> Ints:
        """For each event the nearest row, itself included, of those in `found`; -1 where there is none."""
        return nearest(self.parent, found, self.holders)


def parents(events: Events, rows: Mask) -> Ints:
    """For each of the given rows the innermost other one of the same thread that encloses it; else -1."""
    parent = np.full(len(events), -1, np.int64)
    chosen = np.flatnonzero(rows)
    order = chosen[np.argsort(events.thread[chosen], kind="stable")]  # by thread, then by start, longer first
    if not len(order):
        return parent
    thread, end = events.thread[order], events.end_ns[order]
    # The parent is the nearest earlier row that ends no earlier. Start with the row before and jump along candidates:
    # all rows between a row and its candidate end before it, so the candidate's own candidate is the next to try.
    candidate = np.arange(len(order)) - 1
    same = thread[1:] == thread[:-1]
    candidate[np.flatnonzero(~same) + 1] = -1
    candidate[0] = -1
    short = np.flatnonzero(same & (end[:-1] < end[1:])) + 1
    while len(short):
        candidate[short] = at = candidate[candidate[short]]
        short = short[(at >= 0) & (end[at] < end[short])]  # nobody else's candidate changes any more
    parent[order] = np.where(candidate >= 0, order[np.maximum(candidate, 0)], -1)
    return parent


def _holders(parent: Ints) -> Ints:
    holds = np.zeros(len(parent), bool)
    holds[parent[parent >= 0]] = True
    return np.flatnonzero(holds)


def nearest(parent: Ints, found: Mask, holders: Ints | None = None) -> Ints:
    """For each row the nearest of itself and its ancestors that is in `found`; -1 where there is none.

    holders: the rows that are the parent of another, where they are known already.
    """
    holders = _holders(parent) if holders is None else holders
    # Rows that hold others are few: theirs are settled first, then all rows look once at what is around them.
    settled = np.empty(len(parent) + 1, np.int64)
    settled[-1] = -1  # where a row without a parent looks
    settled[holders] = np.where(found[holders], holders, parent[holders])
    moving = holders
    while True:
        above = settled[moving]
        further = (above >= 0) & ~found[above]
        moving, above = moving[further], above[further]
        if not len(moving):
            break
        settled[moving] = settled[above]
    at = settled[parent]
    chosen = np.flatnonzero(found)
    at[chosen] = chosen
    return at


def _outer_ops(events: Events, parent: Ints) -> Ints:
    is_op = events.of(Category.CPU_OP)
    rows = np.arange(len(events))
    above = np.where(np.append(is_op, False)[parent], parent, rows)  # -1 looks at the end
    while True:
        further = above[above]
        if np.array_equal(further, above):
            return np.where(is_op | (above != rows), above, -1)  # what is above another row is an op
        above = further
