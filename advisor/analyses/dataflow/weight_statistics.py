"""Ops of the profiled steps that work for statistics of weights or gradients which the script only keeps."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.dataflow.needs import Needs
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.trace.events import Ints, Mask, Trace
from advisor.trace.intervals import Intervals, union
from advisor.trace.op_names import AUTOGRAD_NODE, GRADIENT_STORE

# Between two such ops lie at most so many others that work for them: constants, conversions, checks.
_BETWEEN = 8


class WeightStatistics(Struct, frozen=True, eq=False):
    """Ops that read weights and gradients alone, and whose results, such as histograms, no op reads.

    ops    their rows, in order of start, with the views and the reads of numbers among them
    spans  from the first to the last of those that follow each other, with what Python does between them; all of the
           hooks of parameters that they run in (absolute ns)
    """

    ops: Ints
    spans: Intervals

    @classmethod
    def compute(cls, trace: Trace, nesting: Nesting, observed: ObservedOps, needs: Needs) -> WeightStatistics:
        """The rows. Missing where it is not known what the training needs."""
        events = trace.events
        places = np.array([place for place in observed.seen.statistics if not needs.live[place]], np.int64)
        stores = events.named(GRADIENT_STORE)
        other = nesting.within(events.named(AUTOGRAD_NODE)) & ~nesting.within(stores)
        none = np.empty(0, np.int64)
        starts, ends = [none], [none]
        for at in observed.places:
            mine = places[at[places] >= 0]
            if not len(mine):
                continue
            first, last = _runs(mine, needs.live | ((at >= 0) & other[at]))
            hooks = nesting.ancestor_of(at[mine], stores)
            hooks = hooks[hooks >= 0]
            starts += [events.start_ns[at[first]], events.start_ns[hooks]]
            ends += [events.end_ns[at[last]], events.end_ns[hooks]]
        return cls(observed.rows_at(places.tolist()), union(np.concatenate(starts), np.concatenate(ends)))


def _runs(places: Ints, trained: Mask) -> tuple[Ints, Ints]:
    """(first, last) of the places, one or more, that follow each other, few others and nothing trained between them."""
    before = np.append(0, np.cumsum(trained))
    parted = (before[places[1:]] != before[places[:-1]]) | (np.diff(places) > _BETWEEN + 1)
    return places[np.append(True, parted)], places[np.append(parted, True)]
