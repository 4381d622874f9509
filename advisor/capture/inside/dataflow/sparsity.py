"""Matrices that are mostly zeros and stand in a product of every step: an adjacency matrix, a mask of weights.

How many zeros stand in a matrix no trace tells. Those that a product of the observed steps read, that the script held
for some steps and that nothing wrote meanwhile are counted when these steps are over and nothing is timed or recorded;
on a CPU the same product by the matrix in sparse form is timed as well.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from time import perf_counter_ns
from typing import Any

import torch

from .value_numbering import Op, Ref

_PRODUCTS = ("aten::matmul", "aten::mm", "aten::addmm")
# Smaller matrices are multiplied as quickly as a sparse product is called.
_LEAST = 1 << 18
# Counting the zeros of so many numbers takes a tenth of a second.
_MOST = 1 << 25
# Sparse products of matrices with more numbers than this are slower than dense ones on most machines.
_MOST_FILLED = 0.1
# Different matrices that are looked at: a graph network has one or two.
_MOST_PRODUCTS = 8
# The quickest of so many runs is what a product takes; no more than there is time for.
_RUNS, _MOST_NS = 20, 50_000_000

# Rows and columns of a matrix, and columns of what it is multiplied with.
Product = tuple[int, int, int]


def products(ops: Iterable[Op], still: Iterable[int]) -> dict[int, list[Product]]:
    """Storage -> the products of a step's loop with the matrix in it on their left, of matrices that nothing writes."""
    unchanged = set(still)
    found: dict[int, list[Product]] = {}
    for op in ops:
        factors = [ref for argument in op.inputs for ref in argument][-2:]  # before them stands what addmm adds
        if op.name not in _PRODUCTS or op.place != "loop" or len(factors) < 2 or factors[0].storage not in unchanged:
            continue
        (rows, columns), (inner, width) = (_sizes(one) for one in factors)
        one = (rows, columns, width)
        if rows * columns >= _LEAST and columns == inner and one not in found.setdefault(factors[0].storage, []):
            found[factors[0].storage].append(one)
    return dict(list(found.items())[:_MOST_PRODUCTS])


def _sizes(ref: Ref) -> tuple[int, int]:
    """Rows and columns of a matrix; zeros for anything else."""
    sizes = json.loads(ref.form[1]) if isinstance(ref.form, tuple) else []
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (0, 0)


def look(found: Mapping[int, list[Product]], held: Mapping[int, Any]) -> list[dict[str, Any]]:
    """The products with a matrix that is mostly zeros, with the keys of `record.SparseProduct`. held: by storage.

    Never raises: what cannot be looked at (a device that is out of memory) is left out.
    """
    seen: list[dict[str, Any]] = []
    budget = _MOST
    for storage, its in found.items():
        one = held.get(storage)
        if one is None or one.dim() != 2 or one.layout is not torch.strided or one.numel() > budget:
            continue
        budget -= one.numel()
        with contextlib.suppress(Exception):
            seen += _of(one.detach(), its)
    return seen


def _of(matrix: Any, its: list[Product]) -> list[dict[str, Any]]:
    with torch.no_grad():
        filled = int(torch.count_nonzero(matrix)) / matrix.numel()
        if filled > _MOST_FILLED:
            return []
        sparse = matrix.to_sparse() if matrix.device.type == "cpu" else None
        return [
            {"rows": rows, "columns": columns, "width": width, "filled": filled, **_timed(sparse, rows, columns, width)}
            for rows, columns, width in its
            if tuple(matrix.shape) in ((rows, columns), (columns, rows))
        ]


def _timed(sparse: Any, rows: int, columns: int, width: int) -> dict[str, float]:
    """µs of the product by the sparse matrix, and of that by it turned, as the backward pass takes it; on a CPU."""
    if sparse is None:
        return {}
    forward = sparse if tuple(sparse.shape) == (rows, columns) else sparse.t()
    return {"sparse_us": _quickest_us(forward, width), "sparse_backward_us": _quickest_us(forward.t(), width)}


def _quickest_us(sparse: Any, width: int) -> float:
    other = torch.ones(sparse.shape[1], width, dtype=sparse.dtype)
    took: list[int] = []
    while len(took) < _RUNS and sum(took) < _MOST_NS:
        began = perf_counter_ns()
        torch.sparse.mm(sparse, other)
        took.append(perf_counter_ns() - began)
    return min(took) / 1e3
