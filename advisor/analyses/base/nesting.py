"""Which host row encloses which: the call tree of each thread, from times alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.trace.events import Category, Events, Ints, Mask, Numbers, Trace
from advisor.trace.numbers import looked_up, narrowed, row_type, small

HOST_ROWS = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME)


# Marking what lies in one row costs as much as 2,000 rows do where all are asked what they lie in.
_ROWS_PER_FOUND = 2_000


class Nesting(Struct, frozen=True, eq=False):
    """The tree of ops, annotations and runtime calls on each thread. All columns have one entry per event.

    parent    the innermost enclosing event of the same thread, -1 if there is none (and for all other categories)
    self_ns   duration outside of children, ns
    outer_op  the outermost op around an event without an annotation in between: what the user's line called; -1: none
    outermost which events are ops without an outer op in this sense; read-only
    holders   the events that are the parent of another
    tree      the events of the tree by thread, then by start: children follow their parent
    """

    parent: Numbers
    self_ns: Numbers
    outer_op: Numbers
    outermost: Mask
    holders: Numbers
    tree: _Tree

    @classmethod
    def compute(cls, trace: Trace) -> Nesting:
        """The tree of a trace."""
        events = trace.events
        tree = _Tree.of(events, events.of(*HOST_ROWS))
        parent = _parents(tree, len(events))
        child = np.flatnonzero(parent >= 0)
        inside = np.bincount(parent.take(child), events.dur_ns.take(child), minlength=len(events)).astype(np.int64)
        self_ns = narrowed(np.maximum(events.dur_ns - inside, 0))
        outer_op = _outer_ops(events, parent)
        outermost = outer_op == np.arange(len(events), dtype=outer_op.dtype)
        outermost.setflags(write=False)
        return cls(parent, self_ns, outer_op, outermost, _holders(parent), tree)

    def ancestor(self, found: Mask) -> Numbers:
        """For each event the nearest ancestor in `found`, itself included; -1 if there is none."""
        few = np.flatnonzero(found)
        if len(few) * _ROWS_PER_FOUND > len(found):
            return nearest(self.parent, found, self.holders)
        at = np.full(len(found), -1, self.parent.dtype)
        at[few] = few
        for inside, row in self.tree.inside(few):
            at[inside] = row
        return at

    def ancestor_of(self, rows: Numbers, found: Mask) -> Numbers:
        """The same for some events only; -1 for -1."""
        at = rows.copy()
        moving = np.flatnonzero(at >= 0)
        while len(moving):
            moving = moving.compress(~found.take(at.take(moving)))
            at[moving] = above = self.parent.take(at.take(moving))
            moving = moving.compress(above >= 0)
        return at


class _Tree(Struct, frozen=True, eq=False):
    """Rows of host threads in the order of a call tree: by thread, then by start, longer first.

    rows     event rows
    bounds   where each thread starts in them, and the end
    """

    events: Events
    rows: Numbers
    bounds: Ints

    @classmethod
    def of(cls, events: Events, rows: Mask) -> _Tree:
        """The tree of the given rows."""
        chosen = np.flatnonzero(rows).astype(row_type(len(rows)), copy=False)
        thread = events.thread.take(chosen)
        chosen = chosen.take(np.argsort(small(thread), kind="stable"))
        bounds = np.cumsum(np.bincount(thread, minlength=len(events.threads)))
        return cls(events, chosen, np.concatenate(([0], bounds)))

    def inside(self, found: Ints) -> Iterator[tuple[Numbers, int]]:
        """Each of some rows with what lies in it, outer ones first: (the rows from it on, the row)."""
        events = self.events
        for row in found[np.argsort(events.thread[found], kind="stable")].tolist():
            low, high = self.bounds[events.thread[row]], self.bounds[events.thread[row] + 1]
            at = low + int(np.searchsorted(self.rows[low:high], row))
            if at == high or self.rows[at] != row:
                continue  # a row of another category lies in nothing, and nothing in it
            # What starts later lies outside; so does everything from the first row on that ends later.
            end = events.end_ns[row]
            last = int(np.searchsorted(events.start_ns, end, side="right"))
            stop = at + 1 + int(np.searchsorted(self.rows[at + 1 : high], last))
            later = events.end_ns.take(self.rows[at + 1 : stop]) > end
            first = int(later.argmax()) if later.any() else len(later)
            yield self.rows[at : at + 1 + first], row


def parents(events: Events, rows: Mask) -> Numbers:
    """For each of the given rows the innermost other one of the same thread that encloses it; else -1."""
    return _parents(_Tree.of(events, rows), len(events))


def _parents(tree: _Tree, count: int) -> Numbers:
    parent = np.full(count, -1, row_type(count))
    order, end = tree.rows, looked_up(tree.events.end_ns, tree.rows)
    if not len(order):
        return parent
    # The parent is the nearest earlier row that ends no earlier. Start with the row before and jump along candidates:
    # all rows between a row and its candidate end before it, so the candidate's own candidate is the next to try.
    candidate = np.arange(-1, len(order) - 1, dtype=parent.dtype)
    firsts = tree.bounds[:-1][tree.bounds[:-1] < tree.bounds[1:]]
    candidate[firsts] = -1
    short = np.flatnonzero(end[:-1] < end[1:]) + 1
    short = short[candidate[short] >= 0]
    while len(short):
        candidate[short] = at = candidate.take(candidate.take(short))
        short = short.compress((at >= 0) & (end.take(at) < end.take(short)))  # nobody else's candidate changes any more
    held = np.flatnonzero(candidate >= 0)
    parent[order.take(held)] = order.take(candidate.take(held))
    return parent


def _holders(parent: Numbers) -> Numbers:
    holds = np.zeros(len(parent) + 1, bool)
    holds[parent] = True  # what has no parent marks the entry behind the last
    return np.flatnonzero(holds[:-1]).astype(parent.dtype, copy=False)


def nearest(parent: Numbers, found: Mask, holders: Numbers | None = None) -> Numbers:
    """For each row the nearest of itself and its ancestors that is in `found`; -1 where there is none.

    holders: the rows that are the parent of another, where they are known already.
    """
    holders = _holders(parent) if holders is None else holders
    # Rows that hold others are few: theirs are settled first, then all rows look once at what is around them.
    settled = np.empty(len(parent) + 1, parent.dtype)
    settled[-1] = -1  # where a row without a parent looks
    open_ = np.flatnonzero(~found[holders])
    settled[holders] = holders
    moving = holders[open_]
    settled[moving] = above = parent[moving]
    while True:
        further = np.flatnonzero((above >= 0) & ~found.take(above))
        moving, above = moving.take(further), above.take(further)
        if not len(moving):
            break
        settled[moving] = above = settled.take(above)
    at = looked_up(settled, parent)
    chosen = np.flatnonzero(found)
    at[chosen] = chosen
    return at


def _outer_ops(events: Events, parent: Numbers) -> Numbers:
    is_op = np.append(events.of(Category.CPU_OP), False)  # the last entry is looked at by rows without a parent
    ops, inner = np.flatnonzero(is_op), np.flatnonzero(is_op.take(parent))
    above = np.arange(len(events), dtype=parent.dtype)
    above[inner] = parent.take(inner)
    moving = inner
    while len(moving):
        at = above.take(moving)
        further = above.take(at)
        moved = np.flatnonzero(further != at)
        moving = moving.take(moved)
        above[moving] = further.take(moved)
    outer = np.full(len(events), -1, parent.dtype)
    outer[ops] = ops
    outer[inner] = above.take(inner)  # what is above another row is an op
    return outer
