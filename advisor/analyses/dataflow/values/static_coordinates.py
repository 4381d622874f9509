"""Sparse matrices in coordinate form that a step makes of what never changes, and the products with them.

Pure, like `value_numbering`. A sparse tensor has no storage, so it is followed by its identity, from the op that makes
it, through `coalesce`, to the product with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from advisor.analyses.dataflow.observed.value_numbering import Op

_MAKES = "aten::sparse_coo_tensor"
_SORTS = "aten::coalesce"
_PRODUCTS = ("aten::_sparse_mm", "aten::sparse_mm", "aten::mm", "aten::matmul", "aten::addmm")


class CoordinateProduct(Struct, frozen=True):
    """made: the op that makes the matrix; op: the product, by places in the step; between: what sorts it; filled."""

    op: int
    made: int
    between: tuple[int, ...]
    filled: int


def find(ops: Sequence[Op], constant: Collection[int]) -> list[CoordinateProduct]:
    """The products of one step with such a matrix. constant: places of ops that read only what never changes."""
    unchanged = set(constant)
    matrices: dict[int, tuple[int, tuple[int, ...], int]] = {}  # tensor -> made, between, filled
    found = []
    mine = (op for op in ops if op.place != "elsewhere")
    for at, op in enumerate(mine):
        given = [ref.tensor for ref in op.refs]
        known = [matrices[one] for one in given if one in matrices] if op.place == "loop" else []
        if known and op.name in _PRODUCTS:
            made, between, filled = known[0]
            found.append(CoordinateProduct(at, made, between, filled))
        for ref in op.outputs:
            matrices.pop(ref.tensor, None)  # another tensor may have had this number
            if op.name == _MAKES and at in unchanged:
                matrices[ref.tensor] = (at, (), _filled(op))
            elif op.name == _SORTS and known:
                made, between, filled = known[0]
                matrices[ref.tensor] = (made, (*between, at), filled)
    return found


def _filled(op: Op) -> int:
    """How many numbers the matrix holds: its indices are two rows of so many."""
    sizes = op.inputs[0][0].sizes if op.inputs and op.inputs[0] else []
    return sizes[1] if len(sizes) == 2 else 0
