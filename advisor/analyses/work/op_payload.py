"""What ops take beyond being called: arithmetic and memory traffic, which stay however few calls do them."""

from __future__ import annotations

import numpy as np

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.work.op_work import element_counts
from advisor.trace.events import Category, Events, Ints, Mask

# A tensor of so many numbers lies in a core's first cache: an op on it takes what any call takes.
_SMALL = 1024
# Nine of ten calls on small tensors take no longer than what a call is said to take; of fewer there is no ninth.
_CALL_PERCENTILE, _FEWEST = 90, 20


def beyond_calls(events: Events, nesting: Nesting, counted: Mask) -> Ints | None:
    """(n,) ns that each op takes beyond a bare call of this trace; 0 for ops made of others, and for all other rows.

    counted: the rows of the window. None where shapes were not recorded, or no ops on small tensors tell of a call.
    """
    ops = events.of(Category.CPU_OP)
    holds = np.zeros(len(events), bool)
    holds[nesting.parent[ops & (nesting.parent >= 0)]] = True
    leaves = np.flatnonzero(ops & ~holds & counted & (events.dims >= 0))
    largest = np.array([max(element_counts(dims), default=0) for dims in events.dims_table], np.int64)
    known = largest[events.dims[leaves]]
    small, large = leaves[(known > 0) & (known <= _SMALL)], leaves[known > _SMALL]
    if len(small) < _FEWEST:
        return None
    call_ns = int(np.percentile(events.dur_ns[small], _CALL_PERCENTILE))
    found = np.zeros(len(events), np.int64)
    found[large] = np.maximum(events.dur_ns[large] - call_ns, 0)
    return found
