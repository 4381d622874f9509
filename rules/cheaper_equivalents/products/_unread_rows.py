"""Layers of whose rows later ops read half or fewer, and what goes with the other rows."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.api import Events, Floats, Ints, LossLabels, Price, Unread, backward_of, constant, dims_of, sizes

from .._equivalent import Part, rows_of

Shares = Floats
_MASKS = "aten::mul"
_LOSS = "aten::cross_entropy_loss"
# A normalisation or an activation before the rows are taken costs about as much as taking them.
PRODUCTS = ("aten::linear", "aten::matmul", "aten::mm")
# Least share of the work beyond calls that goes with what is not read.
AT_LEAST = constant("share.unread_rows").value
# A result of which more is read is not worth another indexing; as capture judges it.
_MOST_READ = 0.5


class UnreadWork(Struct, frozen=True, eq=False):
    """Rows of the trace that work on rows nobody reads.

    ops      the layers;  rows: these, the losses that ignore their rows, and the backward nodes of both
    unread   for each of `rows` the share of its work that goes
    read     the largest share of a layer's rows that is read
    ignored  a loss ignores the labels of the others;  masked: masks multiply the others by zero
    """

    ops: Ints
    rows: Ints
    unread: Shares
    read: float
    ignored: bool
    masked: bool = False


def unread_work(events: Events, unread: Unread, labels: list[LossLabels]) -> UnreadWork:
    """The layers whose rows are read by half or less, with what goes with them."""
    of_loss = events.exactly(_LOSS)[unread.readers]
    kept = np.array([_kept(events, row, labels) for row in unread.readers[of_loss].tolist()])
    read = unread.read.copy()
    read[of_loss] *= kept
    chosen = read <= _MOST_READ
    by_row: dict[int, float] = {}
    for row, share in zip(unread.ops[chosen].tolist(), read[chosen].tolist(), strict=True):
        by_row[row] = max(share, by_row.get(row, 0.0))
    ops = rows_of(*sorted(by_row))
    # A loss works on the rows that it ignores, too; on those that are taken before it, it does not.
    for row, share in zip(unread.readers[of_loss].tolist(), kept.tolist(), strict=True):
        if share <= _MOST_READ:
            by_row[row] = share
    for row in list(by_row):
        for behind in backward_of(events, rows_of(row)).tolist():
            by_row[behind] = max(by_row[row], by_row.get(behind, 0.0))
    rows = rows_of(*sorted(by_row))
    if not events.exactly(*PRODUCTS)[ops].any():
        rows = ops = rows[:0]
    return UnreadWork(
        ops,
        rows,
        np.array([1 - by_row[row] for row in rows.tolist()]),
        max((by_row[row] for row in ops.tolist()), default=1.0),
        bool(len(kept) and kept.min() <= _MOST_READ),
        bool(events.exactly(_MASKS)[unread.readers[chosen]].any()),
    )


def unread_part(price: Price, rows: Ints, share: float) -> Part:
    """Of ops of whose results so much is not read, what goes without it.

    At least half of that work, without the fixed cost of a call; at most it shrinks with what is read.
    """
    took_us = price.ops.events.dur_ns[rows] / 1e3
    call_us = price.added.recorded_calls_us("op_calls.single")
    beyond = 1.0 if price.on_device else float((took_us - call_us).clip(0).sum() / took_us.sum())
    return rows, AT_LEAST * share * beyond, share


def _kept(events: Events, row: int, labels: list[LossLabels]) -> float:
    """The largest share of labels that a loss of this form was seen to count; all of them where none was seen."""
    dims = dims_of(events, row)
    scores, count = sizes(dims, 0), int(np.prod(sizes(dims, 1)))
    classes = scores[1] if len(scores) > 1 else 0
    alike = [one for one in labels if one.classes == classes and one.labels]
    same = [one for one in alike if one.labels == count] or alike
    return max((1 - one.ignored / one.labels for one in same), default=1.0)
