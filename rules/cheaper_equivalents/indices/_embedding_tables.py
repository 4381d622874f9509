"""Embedding tables whose gradients are dense: how often their rows are looked up, and which ops work on all of them."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
from msgspec import Struct, field

from advisor.api import Category, Ints, StepOps, Trace, backward_of, dims_of, sizes

from .._equivalent import rows_of

_LOOK_UPS = ("aten::embedding", "aten::embedding_bag")
_DENSE = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
_PRODUCTS = ("aten::linear", "aten::t", "aten::mm", "aten::matmul", "aten::addmm")


class Table(Struct):
    """One embedding table: its look-ups, and the rows of the trace that its dense gradient causes.

    looked_up  rows of the table that are looked up
    calls      rows of the trace that look up
    rows       those that write its dense gradient, and update it alone
    listed     those that update lists of tensors, with the share of their numbers that are the table's
    bags       rows are looked up in bags, `nn.EmbeddingBag`
    """

    looked_up: int = 0
    bags: bool = False
    calls: list[int] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)
    listed: dict[int, float] = field(default_factory=dict)


def joined(*tables: Table) -> Table:
    """Several tables as one."""
    listed: dict[int, float] = defaultdict(float)
    for table in tables:
        for row, share in table.listed.items():
            listed[row] += share
    return Table(
        looked_up=sum(table.looked_up for table in tables),
        bags=any(table.bags for table in tables),
        calls=[call for table in tables for call in table.calls],
        rows={row for table in tables for row in table.rows},
        listed=dict(listed),
    )


def tables_of(ops: StepOps) -> dict[tuple[int, int], Table]:
    """Tables by shape, each with the rows that write its dense gradient and update all of it."""
    events, inside = ops.events, ops.links.inside
    dense = set(ops.nesting.outer_op[events.exactly(*_DENSE)].tolist())
    tables: dict[tuple[int, int], Table] = defaultdict(Table)
    for row in np.flatnonzero(events.exactly(*_LOOK_UPS) & inside).tolist():
        dims = dims_of(events, row)
        shape, indices = sizes(dims, 0), sizes(dims, 1)
        if len(shape) != 2:
            continue
        nodes = backward_of(events, rows_of(row))
        if not dense & set(nodes.tolist()):
            continue
        table = tables[shape[0], shape[1]]
        table.looked_up += int(np.prod(indices)) if indices else 1
        table.calls.append(row)
        table.bags |= events.text(row) != _LOOK_UPS[0]
        table.rows |= {node for node in nodes.tolist() if inside[node]}
    if tables:
        # An output layer that shares its weights with a table has a gradient of all rows in any case.
        for shape in _multiplied(ops.trace) & set(tables):
            del tables[shape]
        for row in _updates(ops).tolist():
            dims = dims_of(events, row)
            shape = sizes(dims, 0)
            if len(shape) == 2 and (shape[0], shape[1]) in tables:
                tables[shape[0], shape[1]].rows.add(row)
            for listed, share in _shares(dims).items():
                if listed in tables:
                    tables[listed].listed[row] = share
    return dict(tables)


def _shares(dims: list[Any]) -> dict[tuple[int, int], float]:
    """Of an op on a list of tensors: the share of their numbers that each shape of a matrix has."""
    shapes = [sizes(dims[0], at) for at in range(len(dims[0]))] if dims and isinstance(dims[0], list) else []
    numbers = sum(math.prod(shape) for shape in shapes if shape)
    matrices = {(shape[0], shape[1]): math.prod(shape) for shape in shapes if len(shape) == 2}
    return {shape: one / numbers for shape, one in matrices.items()} if numbers else {}


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


def _updates(ops: StepOps) -> Ints:
    """The optimizer's ops."""
    events = ops.events
    updating = ops.nesting.ancestor(
        events.of(Category.ANNOTATION) & events.named("Optimizer.step#", "Optimizer.zero_grad#")
    )
    found: Ints = np.flatnonzero(
        events.of(Category.CPU_OP) & ops.nesting.outermost & ops.links.inside & (updating >= 0)
    )
    return found
