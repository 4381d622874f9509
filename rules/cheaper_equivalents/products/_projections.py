"""Layers that work on each position by itself, and what was enlarged or joined before them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import Events, Ints, Readers, dims_of, sizes

from ._broadcast_origins import COPIES, LOOKS, is_enlarged

Shape = tuple[int, ...]

_LINEAR = "aten::linear"
PRODUCTS = frozenset({"aten::matmul", "aten::mm", "aten::mv", "aten::einsum"})
_CONVOLUTIONS = ("aten::conv1d", "aten::conv2d", "aten::conv3d")
_EINSUM, _BATCHED = "aten::einsum", "aten::bmm"
PROJECTIONS = frozenset({_LINEAR, *PRODUCTS, *_CONVOLUTIONS})
# Enlarging by less is not worth another order.
LEAST_GROWTH = 1.5
# Ops that copy what they look at where it does not lie in one piece.
_PIECES = frozenset(f"aten::{name}" for name in ("reshape", "contiguous", "clone", "flatten"))
# Between an expanded tensor and what joins it stand the other operands' own ops and views.
_NEAR = 10


class Projection(Struct, frozen=True):
    """A linear layer, a product with a matrix or a vector, or a convolution of one pixel.

    before, after: numbers of each position; at: the dimension
    """

    row: int
    shape: Shape
    at: int
    before: int
    after: int

    @property
    def positions(self) -> int:
        """How many positions it works on."""
        return math.prod(self.shape) // self.before


class Operand(Struct, frozen=True):
    """One of several tensors that are joined. width: numbers of each position; growth: how often each one is said.

    rows: the ops that enlarged it.
    """

    width: int
    growth: float
    rows: tuple[int, ...]


def projection(events: Events, row: int) -> Projection | None:
    """The layer that this op is; None where it mixes positions, or is another op."""
    name, dims = events.text(row), dims_of(events, row)
    shape, weight = sizes(dims, 0), sizes(dims, 1)
    if name == _LINEAR and len(weight) == 2 and shape and shape[-1] == weight[1]:
        return Projection(row, shape, len(shape) - 1, weight[1], weight[0])
    if name == _EINSUM:
        return _of_einsum(events, row, dims)
    # Of two square matrices it is not known which one was joined.
    if name in PRODUCTS and len(weight) in (1, 2) and shape[-1:] == weight[:1] and shape not in ((), weight):
        return Projection(row, shape, len(shape) - 1, weight[0], math.prod(weight[1:]))
    if name not in _CONVOLUTIONS or len(weight) != len(shape) or len(shape) < 3:
        return None
    plain = math.prod(weight[2:]) == 1 and shape[1] == weight[1] and _moves_one(events, row)
    return Projection(row, shape, 1, weight[1], weight[0]) if plain else None


def _of_einsum(events: Events, row: int, dims: Sequence[Any]) -> Projection | None:
    """The sum over the last dimension of a tensor with a matrix, or with a vector or matrix for each head.

    Profiles do not record the equation: the product that it comes to says what is summed, what is made, and how many
    such products there are. A smaller tensor that has more than one dimension in common is none of weights.
    """
    given = [one for one in dims if isinstance(one, list) and one and all(isinstance(each, list) for each in one)]
    if len(given) != 1 or len(given[0]) != 2:
        return None
    weight, shape = sorted((tuple(one) for one in given[0]), key=math.prod)
    product = _product_in(events, row)
    if product is None or len(shape) < 2:
        return None
    heads, summed, sides = product
    positions = math.prod(shape[:-1])
    made = next((each // heads for side, each in (sides, sides[::-1]) if side == positions), 0)
    is_weight = math.prod(weight) == heads * summed * made and len(weight) == 1 + (heads > 1) + (made > 1)
    if summed != shape[-1] or not made or not is_weight or (heads > 1 and heads not in shape[:-1]):
        return None
    return Projection(row, shape, len(shape) - 1, summed, made)


def _product_in(events: Events, row: int) -> tuple[int, int, tuple[int, int]] | None:
    """(matrices, numbers summed, rows of all and columns of all) of the batched product within an op."""
    last = int(np.searchsorted(events.start_ns, events.end_ns[row]))
    inner = [at for at in range(row + 1, last) if events.text(at) == _BATCHED]
    first, second = (sizes(dims_of(events, inner[0]), at) for at in (0, 1)) if len(inner) == 1 else ((), ())
    if len(first) != 3 or len(second) != 3:
        return None
    return first[0], first[2], (first[0] * first[1], first[0] * second[2])


def _moves_one(events: Events, row: int) -> bool:
    """Whether a convolution takes every pixel and adds none."""
    values = json.loads(events.values_table[int(events.values[row])]) if events.values[row] >= 0 else []
    if len(values) < 5 or not all(isinstance(one, str) for one in values[3:5]):
        return False
    return set(values[3].strip("[]").split(", ")) == {"1"} and set(values[4].strip("[]").split(", ")) == {"0"}


def only_reader(events: Events, readers: Readers, row: int) -> int:
    """The op that alone reads what this one made, a change of its type or form left out; -1 where it is not one."""
    for _ in range(3):
        behind = readers.of(row)
        if len(behind) != 1:
            return -1
        row = behind[0]
        if events.text(row) not in ("aten::to", "aten::contiguous", "aten::reshape"):
            return row
    return -1


def in_channels_last(events: Events, row: int) -> bool:
    """Whether the numbers of one position lie side by side in the first operand, as far as strides were recorded."""
    strides = json.loads(events.strides_table[int(events.strides[row])]) if events.strides[row] >= 0 else []
    first = strides[0] if strides and isinstance(strides[0], list) else []
    return (
        len(first) < 2
        or not all(isinstance(one, int) for one in first)
        or first[1] == 1
        or events.text(row) not in _CONVOLUTIONS
    )


def operands(events: Events, ops: Ints, joined: Projection, readers: Readers) -> list[Operand] | None:
    """What a `cat`, the last of these ops, joins for a projection; None where it does not join along its dimension."""
    cat = int(ops[-1])
    dims = dims_of(events, cat)
    shapes = [sizes(dims[0], at) for at in range(len(dims[0]))] if dims and isinstance(dims[0], list) else []
    at = joined.at if joined.at == 1 else -1
    if len(shapes) < 2 or not all(len(shape) == len(shapes[0]) >= 2 for shape in shapes):
        return None
    rest = {(*shape[:at], *shape[at:][1:]) for shape in shapes}
    if sum(shape[at] for shape in shapes) != joined.before or len(rest) != 1:
        return None
    if math.prod(next(iter(rest))) != joined.positions:
        return None
    strides = _strides(events, cat)
    copies = list(_copies(events, ops, readers))
    found = []
    for place, shape in enumerate(shapes):
        own = strides[place] if place < len(strides) else []
        seen = zip(shape, own, strict=False)
        growth = float(math.prod(size for size, step in seen if step == 0 and size > 1))
        rows = _looks(events, ops, shape) if growth > 1 else ()
        if growth == 1:
            growth, rows = next((one for one in copies if _fits(one, events, shape, at)), (1.0, ()))
            copies = [one for one in copies if one[1] != rows]
        found.append(Operand(shape[at], growth, rows))
    return found


def _fits(copy: tuple[float, tuple[int, ...]], events: Events, shape: Shape, at: int) -> bool:
    growth, rows = copy
    small = sizes(dims_of(events, rows[0]), 0)
    return bool(small) and small[at] == shape[at] and round(math.prod(small) * growth) == math.prod(shape)


def _copies(events: Events, ops: Ints, readers: Readers) -> Iterator[tuple[float, tuple[int, ...]]]:
    """(growth, rows) of the ops shortly before the last one that said tensors again for it, by copying them."""
    last = int(ops[-1])
    near = ops[-1 - _NEAR : -1].tolist()
    for at, row in enumerate(near):
        behind = readers.of(row)
        if events.text(row) in COPIES and behind == [last]:
            yield _growth_of_copy(events, row, last), (row,)
        elif events.text(row) in _PIECES and behind == [last] and at and events.text(near[at - 1]) in LOOKS:
            small, large = sizes(dims_of(events, near[at - 1]), 0), sizes(dims_of(events, row), 0)
            if is_enlarged(small, large):
                yield math.prod(large) / math.prod(small), (near[at - 1], row)


def _growth_of_copy(events: Events, row: int, last: int) -> float:
    """How often a `repeat` says its tensor: by the operand of the op that reads it."""
    small = sizes(dims_of(events, row), 0)
    dims = dims_of(events, last)
    shapes = [sizes(dims[0], at) for at in range(len(dims[0]))]
    large = [math.prod(one) / math.prod(small) for one in shapes if small and math.prod(one) > math.prod(small)]
    return next((one for one in large if one == round(one)), 1.0)


def _looks(events: Events, ops: Ints, shape: Shape) -> tuple[int, ...]:
    """The op shortly before the last one that expanded a tensor to this shape."""
    for row in reversed(ops[-1 - _NEAR : -1].tolist()):
        if events.text(row) in LOOKS and is_enlarged(sizes(dims_of(events, row), 0), shape):
            return (row,)
    return ()


def _strides(events: Events, row: int) -> list[list[int]]:
    known = json.loads(events.strides_table[int(events.strides[row])]) if events.strides[row] >= 0 else []
    first = known[0] if known and isinstance(known[0], list) else []
    return first if all(isinstance(one, list) for one in first) else []
