"""Products and convolutions on tensors of 16 bits, which some processors have no instructions for."""

from __future__ import annotations

import numpy as np

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.work.op_costs import work_of
from advisor.trace.events import Events, Ints, Mask

_NARROW = ("c10::BFloat16", "c10::Half")
_KINDS = ("product", "convolution")


def in_sixteen_bits(events: Events, nesting: Nesting, ops: Mask) -> tuple[Ints, float]:
    """The outermost of these ops that multiply tensors of 16 bits, and the operations of all of them.

    Only where shapes and types were recorded.
    """
    narrow = np.array([any(name in text for name in _NARROW) for text in events.dtypes_table], bool)
    rows = np.flatnonzero(ops & (events.dims >= 0) & (events.dtypes >= 0))
    rows = rows[narrow[events.dtypes[rows]]] if len(rows) else rows
    known = {row: work.flops for row in rows.tolist() if (work := work_of(events, row)) and work.kind in _KINDS}
    multiplies = np.zeros(len(events), bool)
    multiplies[list(known)] = True
    found = np.array(list(known), np.int64)
    outermost = found[nesting.ancestor_of(nesting.parent[found].astype(np.int64), multiplies) < 0]
    return outermost, float(sum(known[row] for row in outermost.tolist()))
