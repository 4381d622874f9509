"""Embedding tables whose gradients are dense: how often their rows are looked up, and which ops work on all of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field

import numpy as np
import numpy.typing as npt

from advisor.api import Category, Lines, Links, Nesting, Source, Trace, backward_of, dataclass, dims_of, sizes

_PRODUCTS = ("aten::linear", "aten::t", "aten::mm", "aten::matmul", "aten::addmm")


@dataclass(slots=True)
class Table:
    """One embedding table: rows and calls of its look-ups, and the rows of the trace that its dense gradient causes."""

    looked_up: int = 0
    calls: int = 0
    where: Source | None = None
    rows: list[int] = field(default_factory=list)


def tables_of(trace: Trace, lines: Lines, nesting: Nesting, links: Links) -> dict[tuple[int, int], Table]:
    """Tables by shape, each with the rows that write its dense gradient and update all of it."""
    events = trace.events
    inside = links.inside
    dense = set(nesting.outer_op[events.exactly("aten::embedding_dense_backward")].tolist())
    tables: dict[tuple[int, int], Table] = defaultdict(Table)
    for row in np.flatnonzero(events.exactly("aten::embedding") & inside).tolist():
        dims = dims_of(events, row)
        shape, indices = sizes(dims, 0), sizes(dims, 1)
        if len(shape) != 2:
            continue
        nodes = backward_of(events, np.array([row], np.int64))
        if not dense & set(nodes.tolist()):
            continue
        table = tables[shape[0], shape[1]]
        table.looked_up += int(np.prod(indices)) if indices else 1
        table.calls += 1
        table.where = table.where or lines.where_op(row)
        table.rows += [int(node) for node in nodes if inside[node]]
    if tables:
        # An output layer that shares its weights with a table has a gradient of all rows in any case.
        for shape in _multiplied(trace) & set(tables):
            del tables[shape]
        _add_updates(trace, nesting, inside, tables)
    return dict(tables)


def _multiplied(trace: Trace) -> set[tuple[int, int]]:
    """Shapes of the matrices that products take, as given and transposed."""
    events = trace.events
    kinds = np.flatnonzero(events.exactly(*_PRODUCTS))
    _, first = np.unique(events.dims[kinds], return_index=True)
    shapes = set()
    for row in kinds[first].tolist():
        dims = dims_of(events, row)
        for shape in (sizes(dims, at) for at in range(len(dims))):
            if len(shape) == 2:
                shapes |= {(shape[0], shape[1]), (shape[1], shape[0])}
    return shapes


def _add_updates(
    trace: Trace,
    nesting: Nesting,
    inside: npt.NDArray[np.bool_],
    tables: dict[tuple[int, int], Table],
) -> None:
    """The optimizer's ops whose first tensor is a table; ops on lists of tensors cannot be split and stay out."""
    events = trace.events
    updating = nesting.ancestor(
        events.of(Category.ANNOTATION) & events.named("Optimizer.step#", "Optimizer.zero_grad#")
    )
    outermost = nesting.outermost
    for row in np.flatnonzero(events.of(Category.CPU_OP) & outermost & inside & (updating >= 0)).tolist():
        shape = sizes(dims_of(events, row), 0)
        if len(shape) == 2 and (shape[0], shape[1]) in tables:
            tables[shape[0], shape[1]].rows.append(row)
