"""Ops of the profiled steps that computed what was there already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.analyses.observed_ops import ObservedOps
from advisor.trace.autograd import AUTOGRAD_NODE, FIRST_GRADIENT
from advisor.trace.events import Events, Ints, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Reused:
    """Rows of ops on the loop's thread, in the profiled steps that ran the ops of the observed step.

    ops       the outermost ops of these steps, in order of start
    again     of them those that computed, from the same values, what `first` had computed in the same step
    first     for each of `again` the row of that earlier op
    constant  of them those that read nothing but numbers of the script and tensors that nothing writes
    share     of the profiled steps those in which the ops were found
    """

    ops: Ints
    again: Ints
    first: Ints
    constant: Ints
    share: float

    @classmethod
    def compute(cls, trace: Trace, observed: ObservedOps) -> Reused:
        """The rows. Raises Missing where nobody looked, or what was seen is not what the profiled steps ran."""
        again = np.asarray(observed.seen.again, np.int64).reshape(-1, 2)
        constant = np.asarray(observed.seen.constant, np.int64)
        nothing = np.empty(0, np.int64)
        if not (len(again) or len(constant)) or not observed.places:
            return cls(nothing, nothing, nothing, nothing, observed.share)
        pairs = [at[again] for at in observed.places]
        both = np.concatenate([one[(one >= 0).all(axis=1)] for one in pairs])
        lasting = np.concatenate([one[one >= 0] for one in (at[constant] for at in observed.places)])
        roots = _roots(trace.events, observed.rows)
        both, lasting = both[~np.isin(both[:, 0], roots)], lasting[~np.isin(lasting, roots)]
        return cls(observed.rows, both[:, 0], both[:, 1], lasting, observed.share)


def _roots(events: Events, rows: Ints) -> Ints:
    """The fills by which `backward()` makes the first gradient: nobody can keep those, nor what starts the engine."""
    fills = rows[events.exactly(FIRST_GRADIENT)[rows]]
    nodes = events.start_ns[np.flatnonzero(events.named(AUTOGRAD_NODE))]
    if not len(nodes):
        return fills[:0]
    ends, starts = events.end_ns[fills], np.append(events.start_ns[rows], np.iinfo(np.int64).max)
    node = np.append(nodes, np.iinfo(np.int64).max)[np.searchsorted(nodes, ends)]
    return fills[node < starts[np.searchsorted(starts[:-1], ends)]]
