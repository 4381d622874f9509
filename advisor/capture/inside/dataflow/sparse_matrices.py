"""How much of large matrices is not zero, and on a CPU how long their products take in sparse form.

How many zeros stand in a matrix no trace tells. Those that the script held through the observed steps, that nothing
wrote meanwhile and whose shape stands on the left of a product are counted when these steps are over and nothing is
timed or recorded.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Any

import torch

# A product that the observer wrote down: the shapes of what it was given.
_PRODUCT = re.compile(rb'"name": "aten::(?:matmul|mm|addmm)"[^{]*"inputs": \{[^{}]*"shapes": (\[[^{}]*?\]), "types"')
# Smaller matrices are multiplied as quickly as a sparse product is called.
_LEAST = 1 << 18
# Counting the zeros of so many numbers takes a tenth of a second.
_MOST = 1 << 25
# Matrices with more numbers than this are not timed: sparse products of them are slower on most machines.
_MOST_FILLED = 0.1
# Different products that are timed: a graph network has one or two.
_MOST_PRODUCTS = 8
# The quickest of so many runs is what a product takes; no more than there is time for.
_RUNS, _MOST_NS = 20, 50_000_000

# Rows and columns of a matrix, and columns of what it is multiplied with.
Product = tuple[int, int, int]


def measure(tensors: Iterable[tuple[int, Any]], path: str) -> list[dict[str, Any]]:
    """What `record.DenseMatrix` holds of large matrices. tensors: with their places; path: what the observer wrote.

    Never raises for a matrix that cannot be looked at (a device that is out of memory): it is left out.
    """
    large = [(at, one) for at, one in tensors if _is_large(one)]
    known = products(path) if large else []
    found: list[dict[str, Any]] = []
    numbers, timed = _MOST, _MOST_PRODUCTS
    for at, one in large:
        its = [each for each in known if tuple(one.shape) in (each[:2], each[1::-1])]
        if not its or one.numel() > numbers:
            continue
        numbers -= one.numel()
        with contextlib.suppress(Exception):
            found.append({"held": at, **_of(one.detach(), its[:timed])})
            timed -= len(found[-1]["products"])
    return found


def _is_large(one: Any) -> bool:
    return one.layout is torch.strided and one.dim() == 2 and one.numel() >= _LEAST


def products(path: str) -> list[Product]:
    """The different products of two matrices, the first of them large, in the observer's file."""
    with open(path, "rb") as file:
        shapes = dict.fromkeys(match[1] for match in _PRODUCT.finditer(file.read()))
    return list(dict.fromkeys(one for text in shapes for one in _product(json.loads(text))))


def _product(shapes: list[Any]) -> Iterator[Product]:
    factors = [one for one in shapes if one and isinstance(one[0], int)][-2:]
    if len(factors) == 2 and len(factors[0]) == len(factors[1]) == 2 and factors[0][1] == factors[1][0]:
        (rows, columns), (_, width) = factors
        if rows * columns >= _LEAST:
            yield rows, columns, width


def _of(matrix: Any, its: list[Product]) -> dict[str, Any]:
    rows, columns = matrix.shape
    with torch.no_grad():
        filled = int(torch.count_nonzero(matrix)) / matrix.numel()
        timed = []
        if filled <= _MOST_FILLED and matrix.device.type == "cpu":
            sparse = matrix.to_sparse()
            timed = [_timed(sparse, one) | {"filled": filled} for one in its]
    return {"rows": rows, "columns": columns, "filled": filled, "products": timed}


def _timed(sparse: Any, product: Product) -> dict[str, Any]:
    """µs of the product by the sparse matrix, and of that by it turned, as the backward pass takes it."""
    rows, columns, width = product
    forward = sparse if tuple(sparse.shape) == (rows, columns) else sparse.t()
    return {
        "rows": rows,
        "columns": columns,
        "width": width,
        "sparse_us": _quickest_us(forward, width),
        "sparse_backward_us": _quickest_us(forward.t(), width),
    }


def _quickest_us(sparse: Any, width: int) -> float:
    other = torch.ones(sparse.shape[1], width, dtype=sparse.dtype)
    took: list[int] = []
    while len(took) < _RUNS and sum(took) < _MOST_NS:
        began = perf_counter_ns()
        torch.sparse.mm(sparse, other)
        took.append(perf_counter_ns() - began)
    return min(took) / 1e3
