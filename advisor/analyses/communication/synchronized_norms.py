"""Which collectives exchange the statistics of `nn.SyncBatchNorm`."""

from __future__ import annotations

import numpy as np

from advisor.trace.events import Category, Events, Ints, Mask

# What a layer runs right before it sends its statistics, in the forward and in the backward pass, and what it runs
# with those of all ranks (torch/nn/modules/_functions.py). Only nn.SyncBatchNorm calls the former.
_BEFORE = ("aten::batch_norm_stats", "aten::batch_norm_backward_reduce")
_AFTER = ("aten::batch_norm_gather_stats_with_counts", "aten::batch_norm_elemt", "aten::batch_norm_backward_elemt")


def of_norms(events: Events, ops: Ints) -> Mask:
    """For each op that starts a collective (-1: not known) whether it sends the statistics of a synchronized norm.

    It does if it comes, on its thread, after a layer's own statistics and before what they are needed for.
    """
    found = np.zeros(len(ops), bool)
    host = events.of(Category.CPU_OP)
    before, after = (np.flatnonzero(host & events.exactly(*names)) for names in (_BEFORE, _AFTER))
    for thread in np.unique(events.thread[before]):
        mine = np.flatnonzero((ops >= 0) & (events.thread[np.maximum(ops, 0)] == thread))
        own, needed = (rows[events.thread[rows] == thread] for rows in (before, after))
        place, needed_at = (np.searchsorted(rows, ops[mine]) for rows in (own, needed))
        latest = np.where(needed_at > 0, needed[np.maximum(needed_at - 1, 0)], -1) if len(needed) else -1
        found[mine] = (place > 0) & (own[np.maximum(place - 1, 0)] > latest)
    return found
