"""A table whose rows a loop looks up one by one: each look-up has a gradient of all rows."""

from __future__ import annotations

import numpy as np

from advisor.api import LOOP_ITERATIONS, Finding, Fix, Lines, Price

from ...shared._words import count, often
from .._equivalent import Equivalent, rows_of, worth
from ._embedding_tables import Table

# Ops that choose the next index: what is looked up is not known before then.
_CHOOSES = ("aten::argmax", "aten::multinomial", "aten::topk", "aten::bernoulli_", "aten::bernoulli")
_CERTAIN = "low: one such gradient stays, and as much again for its rows; high: all of them"
_CHOSEN = "low: nothing, as the step also chooses numbers, which may be what it looks up next; high: all such gradients"
_FIX = Fix(
    "Look up all rows at once",
    "numerics",
    "total = sum(embedding(torch.tensor(vocabulary[word])) for word in words)",
    "total = embedding(torch.tensor([vocabulary[word] for word in words])).sum(0)",
)


def looked_up_singly(
    price: Price, lines: Lines, size: tuple[int, int], table: Table, min_share: float
) -> Finding | None:
    """What one look-up for all would save of the backward pass; None where there are few, or it saves too little."""
    events, steps = price.ops.events, price.ops.steps.count
    times = len(table.calls) / steps
    nodes = rows_of(*sorted(row for row in table.rows if events.sequence[row] >= 0))
    if price.on_device or table.bags or times < LOOP_ITERATIONS or not len(nodes):
        return None
    chooses = np.count_nonzero(events.exactly(*_CHOOSES) & price.ops.links.inside) / steps
    certain = 2 * chooses < times
    one = Equivalent(
        parts=((nodes, 1 - 2 / times if certain else 0.0, 1.0),),
        how=_CERTAIN if certain else _CHOSEN,
        claims=("backward",),
        shown=rows_of(*table.calls),
    )
    found = worth(price, lines, one, min_share)
    if found is None:
        return None
    return found.finding(
        f"An embedding of {count(size[0])} rows is looked up {often(times)}{found.at}, and the backward pass of each "
        f"look-up writes a gradient of all rows: {found.spent}.",
        {"rows": size[0], "width": size[1], "look_ups": times, "dense_us": found.spent_us},
        _FIX,
    )
