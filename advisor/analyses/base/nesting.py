"""Which host row encloses which: the call tree of each thread, from times alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.trace.events import Category, Events, Ints, Mask, Numbers, Trace
from advisor.trace.numbers import in_order, looked_up, narrowed, row_type, small

HOST_ROWS = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME)


# Marking what lies in a row takes as long as looking at what so many rows lie in.
_MANY = 8


class Nesting(Struct, frozen=True, eq=False):
    """The tree of ops, annotations and runtime calls on each thread. All columns have one entry per event.

    parent    the innermost enclosing event of the same thread, -1 if there is none (and for all other categories)
    self_ns   duration outside of children, ns
    outer_op  the outermost op around an event without an annotation in between: what the user's line called; -1: none
    outermost which events are ops without an outer op in this sense; read-only
    """

    parent: Numbers
    self_ns: Numbers
    outer_op: Numbers
    outermost: Mask
    _subtrees: _Subtrees

    @classmethod
    def compute(cls, trace: Trace) -> Nesting:
        """The tree of a trace."""
        events = trace.events
        tree = _Tree.of(events, events.of(*HOST_ROWS))
        above = tree.above()
        parent, subtrees = tree.parents(above), _Subtrees.of(tree.rows, above, len(events))
        child = np.flatnonzero(parent >= 0)
        inside = np.bincount(parent.take(child), events.dur_ns.take(child), minlength=len(events)).astype(np.int64)
        self_ns = narrowed(np.maximum(events.dur_ns - inside, 0))
        outer_op = _outer_ops(events, parent)
        outermost = outer_op == np.arange(len(events), dtype=outer_op.dtype)
        outermost.setflags(write=False)
        return cls(parent, self_ns, outer_op, outermost, subtrees)

    @property
    def holders(self) -> Numbers:
        """The events that are the parent of another."""
        return self._subtrees.holders

    def ancestor(self, found: Mask) -> Numbers:
        """For each event the nearest ancestor in `found`, itself included; -1 if there is none."""
        few = np.flatnonzero(found)
        if len(few) * _MANY > len(found):
            return nearest(self.parent, found)
        at = np.full(len(found), -1, self.parent.dtype)
        at[few] = few
        for first, counts in self._subtrees.layers(few):
            at[self._subtrees.members(first, counts)] = np.repeat(self._subtrees.rows.take(first), counts)
        return at

    def within(self, found: Mask) -> Mask:
        """Which events are in `found`, or have an ancestor there."""
        few = np.flatnonzero(found)
        if len(few) * _MANY > len(found):
            return nearest(self.parent, found) >= 0
        inside = found.copy()
        for first, counts in self._subtrees.layers(few):
            inside[self._subtrees.members(first, counts)] = True
            break  # all others lie in these
        return inside

    def ancestor_of(self, rows: Numbers, found: Mask) -> Numbers:
        """The same as `ancestor` for some events only; -1 for -1."""
        if len(rows) * _MANY > len(found) and np.count_nonzero(found) * _MANY < len(found):
            return np.where(rows >= 0, self.ancestor(found).take(rows), -1).astype(rows.dtype)
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

    def above(self) -> Numbers:
        """For each place the place of the nearest earlier row of the thread that ends no earlier; -1 for none."""
        end = np.append(looked_up(self.events.end_ns, self.rows), np.iinfo(np.int64).max)  # that of what has none above
        # Start with the row before and jump along candidates: all rows between a row and its candidate end before it,
        # so the candidate's own candidate is the next to try.
        candidate = np.arange(-1, len(self.rows) - 1, dtype=self.rows.dtype)
        candidate[self.bounds[:-1][self.bounds[:-1] < self.bounds[1:]]] = -1
        short = np.flatnonzero(end[:-2] < end[1:-1]) + 1
        short = short[candidate[short] >= 0]
        ends = end.take(short)
        while len(short):
            candidate[short] = at = candidate.take(candidate.take(short))
            still = np.flatnonzero(end.take(at) < ends)  # nobody else's changes any more
            short, ends = short.take(still), ends.take(still)
        return candidate

    def parents(self, above: Numbers) -> Numbers:
        """For each event its parent; -1 where it has none."""
        parent = np.full(len(self.events), -1, self.rows.dtype)
        held = np.flatnonzero(above >= 0)
        parent[self.rows.take(held)] = self.rows.take(above.take(held))
        return parent


class _Subtrees(Struct, frozen=True, eq=False):
    """What lies in each row of a tree: its descendants are the rows that follow it, in the order of the tree.

    rows     event rows in that order
    place    where each event stands in it; -1 for events of other categories
    behind   for each place that behind the last descendant
    """

    rows: Numbers
    place: Numbers
    behind: Numbers

    @classmethod
    def of(cls, rows: Numbers, above: Numbers, count: int) -> _Subtrees:
        """above: the place of each one's parent; count: of events."""
        places = np.arange(len(rows), dtype=rows.dtype)
        place = np.full(count, -1, rows.dtype)
        place[rows] = places
        held = np.flatnonzero(above >= 0)
        behind = places + 1
        behind[above.take(held)] = held + 1  # of several children the last one counts
        holders = np.flatnonzero(behind > places + 1)
        while len(holders):
            last = behind.take(holders)
            behind[holders] = further = behind.take(last - 1)
            holders = holders.compress(further > last)
        return cls(rows, place, behind)

    @property
    def holders(self) -> Numbers:
        """The events that have descendants."""
        return self.rows.compress(self.behind - np.arange(len(self.rows)) > 1)

    def layers(self, found: Ints) -> Iterator[tuple[Numbers, Numbers]]:
        """Places of some rows, and how many rows each holds, itself included.

        First those that lie in none but themselves, all at once; then those that lie in these, and so on.
        """
        first = self.place.take(found)
        first = in_order(first[first >= 0])  # a row of another category lies in nothing, and nothing in it
        end = self.behind.take(first)
        while len(first):
            outer = np.append(True, first[1:] >= np.maximum.accumulate(end)[:-1])
            yield first[outer], (end - first)[outer]
            first, end = first[~outer], end[~outer]

    def members(self, first: Numbers, counts: Numbers) -> Numbers:
        """The events at so many places from each first one on."""
        before = np.cumsum(counts) - counts
        return self.rows.take(np.repeat(first - before, counts) + np.arange(counts.sum()))


def parents(events: Events, rows: Mask) -> Numbers:
    """For each of the given rows the innermost other one of the same thread that encloses it; else -1."""
    tree = _Tree.of(events, rows)
    return tree.parents(tree.above())


def nearest(parent: Numbers, found: Mask) -> Numbers:
    """For each row the nearest of itself and its ancestors that is in `found`; -1 where there is none."""
    holds = np.zeros(len(parent) + 1, bool)
    holds[parent] = True  # what has no parent marks the entry behind the last
    holders = np.flatnonzero(holds[:-1]).astype(parent.dtype, copy=False)
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
    ops, inner = np.flatnonzero(is_op), np.flatnonzero(looked_up(is_op, parent))
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
