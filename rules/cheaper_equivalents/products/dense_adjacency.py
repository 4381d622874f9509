"""A matrix that is mostly zeros is multiplied in dense form.

## What it looks at
Matrix multiplications whose left operand is mostly zeros (at least nine tenths), as large as 512 x 512, and the same
in each step: the adjacency matrix of a graph, a fixed mask of weights. Traces do not contain the values of a matrix:
after the profiled steps, `advisor run` counts the zeros of matrices that are never written, and on a CPU it times the
same multiplication with the matrix in sparse form.

## Why it costs time
The multiplication reads and multiplies every zero, and so does its backward pass. In a graph of thousands of nodes each
has a few neighbors: of a thousand multiplications, one or two matter.

## How to fix it
Build the matrix as a sparse tensor (`torch.sparse_coo_tensor(...).coalesce()`, or `matrix.to_sparse()` once before the
loop) and multiply with `torch.sparse.mm(matrix, x)`; or sum rows over edges with `index_add`, as PyTorch Geometric
does.

## When to leave it
Matrices that are trained, and small ones on a GPU, where dense multiplications are fast. Sums are computed in another
order, so results differ in the last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from advisor.api import Drawing, Example, Finding, Fix, JudgedSteps, Lines, Price, Settings

from ...shared._examples import node, op, two_steps
from ...shared._places import first_of, set_at
from ...shared._words import percent, plural
from .._equivalent import Equivalent, rows_of, whole, worth
from ._sparse_rows import sparse_rows, sparse_us

CONFIRMED = "measured pair on a CPU: a graph network on a dense adjacency matrix against a sparse one"

_HOW = (
    "these multiplications minus the same ones with the sparse matrix, as timed in this run; low: with half as much "
    "again for overhead"
)
_FIX = Fix(
    "Store the matrix as a sparse tensor",
    "numerics",
    "adjacency = torch.zeros(nodes, nodes)\nadjacency[target, source] = weight\nx = adjacency @ x",
    "adjacency = torch.sparse_coo_tensor(torch.stack([target, source]), weight, (nodes, nodes)).coalesce()\n"
    "x = torch.sparse.mm(adjacency, x)",
)


def check(
    price: Price,
    lines: Lines,
    judged: JudgedSteps,
    settings: Settings | None,
    *,
    min_share: float = 0.05,  # the matrix needs another format and other calls, which less does not justify
) -> Iterator[Finding]:
    found = list(sparse_rows(price.ops, judged.sparse_products))
    if not found:
        return
    rows, forward = [row for row, _, _ in found], [row for row, _, backward in found if not backward]
    one = Equivalent(
        parts=whole(rows_of(*rows)),
        how=_HOW,
        instead_us=sparse_us(price, found),
        ops="long",
        timed_on_device=False,
        shown=rows_of(*(forward or rows[:1])),
    )
    if known := worth(price, lines, one, min_share):
        largest = max((one for _, one, _ in found), key=lambda one: one.rows * one.columns)
        products = len(found) / price.ops.steps.count
        finding = known.finding(
            f"{plural(products, 'matrix multiplication')} per step{known.at} with a dense matrix "
            f"of {largest.rows:,} x {largest.columns:,} numbers, of which {percent(largest.filled)} are not zero: "
            f"{known.spent}.",
            {"products": products, "dense_us": known.spent_us, "filled": largest.filled},
            _FIX,
        )
        # Where the script says that it is made dense, it is to stay sparse.
        yield replace(finding, where=first_of(set_at(settings, "to_dense"), finding.where))


def _drawn(columns: int = 2700) -> Drawing:
    """Layers (F), the product (A), its node (N) with the product for the gradient (M), and more (B)."""
    return two_steps(
        "[F   ][A           ][N             ][B   ]",
        "                     [M           ]",
        A=op("mm", [2700, columns], [columns, 32], number=5),
        N=node(5, "MmBackward0"),
        M=op("mm", [columns, 2700], [2700, 32]),
    )


def _counted(**timed: float) -> dict[str, Any]:
    return {"sparse_products": [{"rows": 2700, "columns": 2700, "width": 32, "filled": 0.002, **timed}]}


_TIMED = _counted(sparse_us=100.0, sparse_backward_us=150.0)
_AS_LONG = _counted(sparse_us=1400.0, sparse_backward_us=1400.0)

EXAMPLES = [
    Example(
        "a graph of 2,700 nodes with a few neighbours each",
        _drawn(),
        saves_us=(2100, 3000),
        facts=_TIMED,
        says=("2 matrix multiplications per step", "2,700 x 2,700", "0.2 % are not zero"),
    ),
    Example("the same where the sparse product was not timed", _drawn(), saves_us="unknown", facts=_counted()),
    Example("products of other matrices", _drawn(300), None, _TIMED, near_miss=True),
    Example("the sparse product would take as long", _drawn(), None, _AS_LONG, near_miss=True),
    Example("no such matrix was seen", _drawn(), None, {"sparse_products": []}),
]
