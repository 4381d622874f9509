"""Ops on single numbers: what a loop runs that reads, compares and writes the elements of tensors one by one."""

from __future__ import annotations

import numpy as np

from advisor.analyses.work.op_work import element_counts
from advisor.trace.events import Events, Ints

# What only tells where an element lies, in ops that take the whole tensor.
_VIEWS = frozenset(
    f"aten::{name}" for name in ("select", "as_strided", "slice", "unbind", "view", "unsqueeze", "squeeze")
)
# The loss and the update of the parameters are ops of the same step.
_NEARLY_ALL = 0.9


def on_numbers(events: Events, rows: Ints) -> bool:
    """Whether nine of ten of these ops, but for views, take single numbers. False where no shapes were recorded."""
    views = np.array([name in _VIEWS for name in events.names], bool)
    known = rows[(events.dims[rows] >= 0) & ~views[events.name[rows]]]
    single = np.array([max(element_counts(dims), default=0) <= 1 for dims in events.dims_table], bool)
    return len(known) > 0 and float(single[events.dims[known]].mean()) >= _NEARLY_ALL
