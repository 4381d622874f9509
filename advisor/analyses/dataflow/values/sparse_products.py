"""Matrices that are mostly zeros and stand on the left of a product of every step: an adjacency matrix, a mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from advisor.analyses.dataflow.observed.observed_steps import ObservedSteps
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.capture.record import SparseProduct

_PRODUCTS = ("aten::matmul", "aten::mm", "aten::addmm")
# Smaller matrices are multiplied as quickly as a sparse product is called.
_LEAST = 1 << 18
# Sparse products of matrices with more numbers than this are slower than dense ones on most machines.
_MOST_FILLED = 0.1

# Rows and columns of a matrix, and columns of what it is multiplied with.
Product = tuple[int, int, int]


def find(observed: ObservedSteps) -> Iterator[SparseProduct]:
    """The products of the last observed step with a matrix that is mostly zeros and that nothing writes."""
    matrices = dict(observed.matrices)
    for storage, its in products(observed.steps[-1], observed.still).items():
        one = matrices.get(storage)
        if one is None or one.filled > _MOST_FILLED:
            continue
        timed = {(each.rows, each.columns, each.width): each for each in one.products}
        for product in its:
            rows, columns, width = product
            if product in timed or (rows, columns) in ((one.rows, one.columns), (one.columns, one.rows)):
                yield timed.get(product) or SparseProduct(rows, columns, width, one.filled)


def products(ops: Iterable[Op], still: Iterable[int]) -> dict[int, list[Product]]:
    """Storage -> the products of a step's loop with the matrix in it on their left, of matrices that nothing writes."""
    unchanged = set(still)
    found: dict[int, list[Product]] = {}
    for op in ops:
        factors = op.refs[-2:]  # before them stands what addmm adds
        if op.name not in _PRODUCTS or op.place != "loop" or len(factors) < 2 or factors[0].storage not in unchanged:
            continue
        (rows, columns), (inner, width) = (_sizes(one) for one in factors)
        one = (rows, columns, width)
        if rows * columns >= _LEAST and columns == inner and one not in found.setdefault(factors[0].storage, []):
            found[factors[0].storage].append(one)
    return found


def _sizes(ref: Ref) -> tuple[int, int]:
    """Rows and columns of a matrix; zeros for anything else."""
    sizes = ref.sizes if isinstance(ref.form, tuple) else []
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (0, 0)
