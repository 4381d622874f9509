"""Keys and values that are copied to give every head of a group its own."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Ints, StepOps, dims_of, sizes

ATTENTION = "aten::scaled_dot_product_attention"
# Calls between the copies and their attention: those of keys and values, rotations, masks, casts.
_NEAR = 40


def repeated_heads(recorded: StepOps) -> tuple[Ints, Ints, int]:
    """The outermost ops that repeat keys or values for an attention that follows, those calls, the heads of a group."""
    events, nesting = recorded.events, recorded.nesting
    inside = recorded.links.inside & events.of(Category.CPU_OP) & (events.dims >= 0)
    attention = np.flatnonzero(inside & events.exactly(ATTENTION))
    clones = np.flatnonzero(inside & events.exactly("aten::clone"))
    if not len(attention) or not len(clones):
        return attention[:0], attention[:0], 0
    calls = np.flatnonzero(inside & nesting.outermost)
    found, used, groups = [], [], []
    for row in clones.tolist():
        shape = sizes(dims_of(events, row), 0)
        if len(shape) != 5 or shape[2] < 2:
            continue
        call = int(nesting.outer_op[row])
        after = attention[np.searchsorted(attention, row) :]
        user = next((one for one in after.tolist() if events.thread[one] == events.thread[row]), -1)
        if user < 0 or np.searchsorted(calls, user) - np.searchsorted(calls, call) > _NEAR:
            continue
        if sizes(dims_of(events, user), 1) == (shape[0], shape[1] * shape[2], *shape[3:]):
            found.append(call)
            used.append(user)
            groups.append(shape[2])
    return np.unique(np.array(found, np.int64)), np.unique(np.array(used, np.int64)), max(groups, default=0)
