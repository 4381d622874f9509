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

    counted: the rows of the window. None where shapes were not recorded, or no ops on small tensors tell of a call. An
    op whose time is mostly its own works itself: `aten::mm` only asks `aten::resolve_conj` before.
    """
    ops = events.of(Category.CPU_OP)
    inner = np.flatnonzero(ops & (nesting.parent >= 0))
    inside_ns = np.bincount(nesting.parent[inner], weights=events.dur_ns[inner], minlength=len(events)).astype(np.int64)
    known = ops & counted & (events.dims >= 0)
    if not known.any():
        return None
    largest = np.array([max(element_counts(dims), default=0) for dims in events.dims_table], np.int64)
    sizes = np.where(known, largest[events.dims], 0)
    small = np.flatnonzero((sizes > 0) & (sizes <= _SMALL) & (inside_ns == 0))
    if len(small) < _FEWEST:
        return None
    call_ns = int(np.percentile(events.dur_ns[small], _CALL_PERCENTILE))
    own_ns = events.dur_ns - inside_ns
    large = np.flatnonzero((sizes > _SMALL) & (2 * inside_ns < events.dur_ns))
    found = np.zeros(len(events), np.int64)
    found[large] = np.maximum(own_ns[large] - call_ns, 0)
    return found
