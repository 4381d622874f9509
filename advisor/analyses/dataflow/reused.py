"""Ops of the profiled steps that computed what was there already."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.op_names import AUTOGRAD_NODE, FIRST_GRADIENT


class Reused(Struct, frozen=True, eq=False):
    """Ops on the loop's thread that compute a known result, in profiled steps with the ops of the observed step.

    ops       the outermost ops of these steps, in order of start; if autocast repeated casts, the casts and the op
              next to them replace the call around them
    again     those of them that computed, from the same values, what `first` had computed
    first     for each of `again` that earlier op
    over      whether that op is of the previous step; in the first step the same op of that step replaces it
    constant  those of them that read only Python numbers and tensors that nothing writes
    share     share of profiled steps in which the ops were found
    """

    ops: Ints
    again: Ints
    first: Ints
    over: Mask
    constant: Ints
    share: float

    @classmethod
    def compute(cls, trace: Trace, observed: ObservedOps, nesting: Nesting) -> Reused:
        """The ops. Raises Missing if no steps were observed, or if the profiled steps ran different ops."""
        seen = observed.seen
        again = np.asarray(seen.again, np.int64).reshape(-1, 2)
        constant = np.asarray(seen.constant, np.int64)
        nothing = np.empty(0, np.int64)
        if not (len(again) or len(constant) or seen.casts) or not observed.places:
            return cls(nothing, nothing, nothing, nothing.astype(bool), nothing, observed.share)
        before = (observed.places[0], *observed.places)
        pairs = [paired(at, last, again) for at, last in zip(observed.places, before, strict=False)]
        lasting = np.concatenate([one[one >= 0] for one in (at[constant] for at in observed.places)])
        roots = _roots(trace.events, observed.rows)
        cast, ops = _casts(trace.events, observed, nesting)
        both = np.concatenate((*pairs, cast))
        both, lasting = both[~np.isin(both[:, 0], roots)], lasting[~np.isin(lasting, roots)]
        return cls(ops, both[:, 0], both[:, 1], both[:, 2] > 0, lasting, observed.share)


def paired(at: Ints, before: Ints, again: Ints) -> Ints:
    """(n, 3) the rows of one step that compute again, those that had, and whether these are of the step before."""
    over = again[:, 1] < 0
    first = np.where(over, before[again[:, 1]], at[again[:, 1]])
    found = np.stack((at[again[:, 0]], first, over), axis=1)
    return found[(found[:, :2] >= 0).all(axis=1)]


def _casts(events: Events, observed: ObservedOps, nesting: Nesting) -> tuple[Ints, Ints]:
    """(n, 3) casts that autocast made again, as `_pairs`; and the ops, with what is in a call instead of that call."""
    wanted = {one for op, number, first, ordinal in observed.seen.casts for one in ((op, number), (first, ordinal))}
    inside: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.isin(nesting.parent, observed.rows) & events.of(Category.CPU_OP)).tolist():
        inside.setdefault(int(nesting.parent[row]), []).append(row)
    found, taken = [], set()
    casting = events.exactly("aten::to")
    for at in observed.places if wanted else ():
        rows: dict[tuple[int, int], int] = {}
        for op in {op for op, _ in wanted}:
            casts = [row for row in inside.get(int(at[op]), ()) if casting[row]] if at[op] >= 0 else []
            rows |= {(op, number): row for number, row in enumerate(casts)}
        for op, number, first, ordinal in observed.seen.casts:
            if (op, number) in rows and (first, ordinal) in rows:
                found.append((rows[op, number], rows[first, ordinal], 0))
                taken |= {int(at[op]), int(at[first])}
    within = [row for one in taken for row in inside[one]]
    ops = np.union1d(np.setdiff1d(observed.rows, list(taken)), np.array(within, np.int64))
    return np.array(found, np.int64).reshape(-1, 3), ops


def _roots(events: Events, rows: Ints) -> Ints:
    """The fills by which `backward()` makes the first gradient: nobody can keep those, nor what starts the engine."""
    fills = rows[events.exactly(FIRST_GRADIENT)[rows]]
    nodes = events.start_ns[np.flatnonzero(events.named(AUTOGRAD_NODE))]
    if not len(nodes):
        return fills[:0]
    ends, starts = events.end_ns[fills], np.append(events.start_ns[rows], np.iinfo(np.int64).max)
    node = np.append(nodes, np.iinfo(np.int64).max)[np.searchsorted(nodes, ends)]
    return fills[node < starts[np.searchsorted(starts[:-1], ends)]]
