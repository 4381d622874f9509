"""Graph messages are gathered and scattered where a sparse product would do.

## What it looks at
Rows that are gathered by index (`x[source]`), multiplied by one weight for each edge, and summed by another index
(`index_add`, `scatter_add`), where the observed steps show that indices and weights are tensors that the script holds
and does not change, and that nothing else reads the messages.

## Why it costs time
The messages are a tensor with a row for each edge, usually many times larger than that of the nodes. It is written,
read, scaled into a second one and read again, and the backward pass does the same in reverse. A sparse matrix product
sums the rows as it reads them, and stores no messages.

## How to fix it
Create the matrix once,
`torch.sparse_coo_tensor(torch.stack((target, source)), weight, (nodes, nodes)).to_sparse_csr()`, and multiply:
`torch.sparse.mm(adjacency, x)`. Graph libraries accept such a matrix in place of the list of edges.

## When to leave it
Edge weights that are trained or computed from the nodes, as in graph attention. Graphs that change in each step.
Results differ by rounding, because sums are computed in another order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    Drawing,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    ObservedOps,
    Price,
    constant,
    dims_of,
    nodes_of,
    sizes,
)

from ...shared._examples import node, op, two_steps
from ...shared._words import count, often
from .._equivalent import Equivalent, worth

_GOES = constant("share.sparse_messages").range
# Numbers in the messages from which on that share was measured.
_LEAST = 640_000
_HOW = "share of such ops and their backward pass that a sparse matrix product saved, in seven shapes on a CPU"


def check(
    price: Price,
    lines: Lines | None,
    observed: ObservedOps,
    *,
    min_share: float = 0.05,  # of the step: edges need another format and other calls, which less does not justify
) -> Iterator[Finding]:
    if price.on_device or not observed.seen.messages:
        return
    events = price.ops.events
    found = [rows for rows in _rows(observed) if _numbers(price, int(rows[2])) >= _LEAST]
    if not found:
        return
    rows = np.unique(np.concatenate(found))
    nodes = nodes_of(events, price.ops.outermost, rows)
    every = np.unique(np.concatenate((rows, nodes)))
    gathers = np.array([int(each[0]) for each in found], np.int64)
    one = Equivalent(parts=((every, *_GOES),), how=_HOW, shown=gathers)
    if known := worth(price, lines, one, min_share):
        edges, columns = sizes(dims_of(events, int(found[0][2])), 3)[:2]
        times = len(found) / price.ops.steps.count
        yield known.finding(
            f"{often(times).capitalize()}{known.at}, rows of {count(columns)} columns are gathered for "
            f"{count(edges)} edges, scaled, and summed by indices that never change: {known.spent}, backward pass "
            "included. A sparse matrix product does the same.",
            {"edges": edges, "columns": columns, "messages_us": known.spent_us},
            _FIX,
        )


_FIX = Fix(
    "Multiply by a sparse adjacency matrix",
    "numerics",
    "messages = x[source] * weight[:, None]\nx = torch.zeros_like(x).index_add(0, target, messages)",
    "edges = torch.stack((target, source))\n"
    "adjacency = torch.sparse_coo_tensor(edges, weight, (nodes, nodes)).to_sparse_csr()  # once\n"
    "x = torch.sparse.mm(adjacency, x)",
)


def _rows(observed: ObservedOps) -> Iterator[Ints]:
    """The rows of each such gather, scaling and scatter, in every profiled step in which all are known."""
    for places in observed.places:
        for each in observed.seen.messages:
            rows = places[list(each)]
            if (rows >= 0).all():
                yield rows


def _numbers(price: Price, row: int) -> int:
    """Numbers in what a scatter adds up."""
    shape = sizes(dims_of(price.ops.events, row), 3)
    return int(np.prod(shape)) if len(shape) == 2 else 0


_LANE = "[F  ][G      ][M   ][S      ][O]"
_BACK = "[D     ][N   ][H         ]"


def _facts(*, stay: bool = True) -> dict[str, object]:
    seen = {"names": ["aten::linear", "aten::index", "aten::mul", "aten::index_add"], "ops": [0, 1, 2, 3]}
    return {"reused": seen | {"messages": [[1, 2, 3]] if stay else [], "waits": [[], [1], [1], [1]]}}


def _drawn(edges: int) -> Drawing:
    return two_steps(
        _LANE + _BACK,
        F=op("linear", [2500, 48], [48, 48], number=1),
        G=op("index", [2500, 48], [], number=2),
        M=op("mul", [edges, 48], [edges, 1], number=3),
        S=op("index_add", [2500, 48], [], [edges], [edges, 48], [], number=4),
        D=node(4, "IndexAddBackward0"),
        N=node(3, "MulBackward0"),
        H=node(2, "IndexBackward0"),
    )


EXAMPLES = [
    Example(
        "a mean over the neighbours of a graph that stays",
        _drawn(60_000),
        # G, M, S and their nodes D, N, H take 0.9 + 0.6 + 0.9 + 0.8 + 0.6 + 1.2 ms; 59 to 92 % go.
        facts=_facts(),
        saves_us=(2_800, 4_700),
        says=("Once a step", "60,000 edges"),
    ),
    Example(
        "weights of edges that are computed from the nodes", _drawn(60_000), facts=_facts(stay=False), near_miss=True
    ),
    Example("a small graph", _drawn(2_000), facts=_facts()),
    Example("nobody saw what ops read", _drawn(60_000), skipped="was not captured by"),
]
