"""Attention that is computed op by op: product, softmax, product."""

from __future__ import annotations

import numpy as np

from advisor.api import AUTOGRAD_NODE, Category, Events, Ints, Lines, Links, Nesting, RowMask, Source, Trace, shapes

from ._attention_cost import SOFTMAX

# From product to softmax and from softmax to product, in calls of the user's or a module's code: scale, mask, dropout,
# casts, each perhaps with views around it.
_NEAR = 8
# Of the statements of one attention so many are named: scores, mask, softmax, product.
_MOST_LINES = 4
_PRODUCTS = ("aten::bmm", "aten::baddbmm")


def attentions(trace: Trace, nesting: Nesting, links: Links) -> list[Ints]:
    """Rows of each attention: first product, the calls between (ops that no other op called), second product."""
    events = trace.events
    if not events.exactly(*SOFTMAX).any():
        return []
    backward = nesting.within(events.named(AUTOGRAD_NODE))
    outer = nesting.outer_op
    ops = events.of(Category.CPU_OP) & links.inside & ~backward
    calls = np.flatnonzero(ops & (outer == np.arange(len(events))))
    calls = calls[np.argsort(events.thread[calls], kind="stable")]
    # For each call the product and the softmax in it, -1 where it has none.
    product, softmax = (_within(events, ops & events.exactly(*names), outer)[calls] for names in (_PRODUCTS, SOFTMAX))
    products = np.flatnonzero(product >= 0)
    found = []
    for at in np.flatnonzero((softmax >= 0) & (product < 0)).tolist():
        behind = int(np.searchsorted(products, at))
        if behind == 0 or behind == len(products):
            continue
        before, after = int(products[behind - 1]), int(products[behind])
        if at - before > _NEAR or after - at > _NEAR or events.thread[calls[before]] != events.thread[calls[after]]:
            continue
        scores, weighted = int(product[before]), int(product[after])
        if _of_one_matrix(events, scores, int(softmax[at]), weighted):
            found.append(np.array([scores, *calls[before + 1 : after].tolist(), weighted], np.int64))
    return found


def lines_of_pattern(lines: Lines | None, rows: Ints) -> tuple[Source, ...]:
    """The lines of one attention in the function of its softmax, in order: the first begins what one call replaces."""
    if lines is None:
        return ()
    middle = lines.where_op(int(rows[len(rows) // 2]))
    found = [one for row in rows.tolist() if (one := lines.where_op(row)) is not None]
    same = (one for one in found if middle and (one.file, one.function) == (middle.file, middle.function))
    return tuple(dict.fromkeys(same))[:_MOST_LINES]


def _within(events: Events, rows: RowMask, outer: Ints) -> Ints:
    """For each event the last of these rows that it is the outermost op of, -1 where there is none."""
    found = np.full(len(events), -1, np.int64)
    mine = np.flatnonzero(rows)
    found[outer[mine]] = mine
    return found


def _of_one_matrix(events: Events, scores: int, softmax: int, weighted: int) -> bool:
    """Whether a product makes the matrix that the softmax reads and another uses; yes where shapes are unknown."""
    if min(events.dims[scores], events.dims[softmax], events.dims[weighted]) < 0:
        return True
    made, read, used = (
        [one for one in shapes(events.dims_table[events.dims[row]]) if len(one) > 1]
        for row in (scores, softmax, weighted)
    )
    if len(made) < 2 or not read or not used:
        return True
    size = read[0][-2:]
    return [made[-2][-2], made[-1][-1]] == size and used[-2][-2:] == size
