"""Comparisons of all pairs of two sets of rows that are made by broadcasting, and what a product of them takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from advisor.api import Events, Ints, Price, Readers, backward_passes, constant, dims_of, sizes

from ._broadcast_origins import broadcast, is_enlarged, originals

Shape = tuple[int, ...]
Kind = Literal["cosine", "product", "outer", "weighted", "square", "absolute", "norm"]
# Ops that compare all pairs by themselves.
_WHOLE: dict[str, Kind] = {"aten::cosine_similarity": "cosine", "aten::pairwise_distance": "norm"}
# What makes a number for each number of each pair, and what may follow before the sum.
_FIRST = frozenset(("aten::sub", "aten::mul", "aten::mse_loss", "aten::l1_loss"))
# Products of matrices of one column and one row, and what calls these or products of numbers.
_MATRICES, _EINSUM = ("aten::bmm", "aten::matmul"), "aten::einsum"
_BY_ITSELF: dict[str, Kind] = dict.fromkeys(("aten::mul", *_MATRICES, _EINSUM), "product")
_BY_ITSELF |= {"aten::mse_loss": "square", "aten::l1_loss": "absolute"}
_SECOND: dict[str, Kind] = {"aten::pow": "square", "aten::square": "square", "aten::mul": "square"}
_SECOND |= {"aten::abs": "absolute"}
_SUMS = frozenset(f"aten::{name}" for name in ("sum", "mean", "nansum"))
_NORMS = frozenset(f"aten::{name}" for name in ("norm", "linalg_vector_norm", "linalg_norm", "frobenius_norm"))
# What may weigh products before they are summed.
_SCALES = ("aten::mul", "aten::div")
# Tensors of fewer numbers take no longer than the calls.
_LEAST_NUMBERS = 4096
# What comes instead besides its calls, in passes of an elementwise op over the table of pairs, as measured on a CPU for
# seven sizes (64 to 1,000 rows, 2 to 128 numbers each); with the backward pass, and without.
_PASSES, _PASSES_ALONE = constant("passes.pairs_trained").range, constant("passes.pairs").range
# cdist of absolute differences, of a pass over the numbers of all pairs.
_ABSOLUTE = constant("passes.absolute_pairs").range


class AllPairs(Struct, frozen=True):
    """One comparison. rows: the forward ops that go; shape: what is broadcast to; width: numbers of each pair.

    "outer": products of all numbers of one row with all of another, summed over the rows. "weighted": differences of
    all pairs times weights, summed over either side: `pairs` sums of `width` terms.
    """

    kind: Kind
    rows: tuple[int, ...]
    shape: Shape
    pairs: int
    width: int


def all_pairs(events: Events, ops: Ints, readers: Readers | None) -> Iterator[AllPairs]:
    """The comparisons of all pairs among these ops."""
    wanted = events.exactly(*_WHOLE, *((*_FIRST, *_MATRICES, _EINSUM) if readers else ()))[ops]
    for at in np.flatnonzero(wanted).tolist():
        row = int(ops[at])
        left, right = _operands(events, ops[: at + 1])
        shape = broadcast(left, right)
        kinds = _dimensions(left, right, shape) if math.prod(shape) >= _LEAST_NUMBERS else None
        if kinds is None:
            continue
        if (kind := _WHOLE.get(events.text(row))) is not None:
            yield AllPairs(kind, (row,), shape, math.prod(shape) // kinds[-1], kinds[-1])
        elif readers is not None and (chain := _chain(events, readers, row, shape)) is not None:
            kind, rows = chain
            shape = sizes(dims_of(events, rows[-1]), 0)  # einsum may have permuted it
            summed = _summed(events, readers, rows[-1], shape, shape if kind == "weighted" else kinds)
            if summed is not None:
                kind = "outer" if kind == "product" and summed != len(shape) - 1 else kind
                yield AllPairs(kind, rows, shape, math.prod(shape) // shape[summed], shape[summed])


def _operands(events: Events, ops: Ints) -> tuple[Shape, Shape]:
    """Shapes of what the last op broadcasts; () where it is a product of more than one column and one row."""
    row = int(ops[-1])
    if events.text(row) == _EINSUM:
        within = [one for one in backward_passes.inside(events, row) if events.text(one) in ("aten::mul", "aten::bmm")]
        if len(within) != 1:
            return (), ()
        row, ops = within[0], np.array(within)
    left, right = originals(events, ops, 2)
    if events.text(row) in _MATRICES and not (len(left) > 1 and len(right) > 1 and left[-1] == right[-2] == 1):
        return (), ()
    return left, right


def _dimensions(left: Shape, right: Shape, shape: Shape) -> list[int] | None:
    """Sizes of the dimensions that both have, the likeliest to be summed last; None where these are not all pairs."""
    ours, theirs = _padded(left, len(shape)), _padded(right, len(shape))
    pairs = list(zip(ours, theirs, strict=True))
    if not any(a > 1 == b for a, b in pairs) or not any(b > 1 == a for a, b in pairs):
        return None
    return [a for a, b in pairs if a == b > 1] or None


def _padded(shape: Shape, length: int) -> Shape:
    return (1,) * (length - len(shape)) + shape


def _chain(events: Events, readers: Readers, row: int, shape: Shape) -> tuple[Kind, tuple[int, ...]] | None:
    """What is made of the numbers, and the ops from the first to the sum; None where something else reads them."""
    kind = _BY_ITSELF.get(events.text(row))
    rows = [row]
    for _ in range(2):
        behind = readers.of(rows[-1])
        name = events.text(behind[0]) if len(behind) == 1 else ""
        if kind is None and name in _NORMS:
            return "norm", (*rows, *behind)
        if kind is not None and name in _SUMS:
            return kind, (*rows, *behind)
        if events.text(rows[-1]) == "aten::sub" and name == "aten::mul" and _weighs(events, behind[0], shape):
            kind = "weighted"
            rows += behind
            continue
        if kind == "product" and len(rows) == 1 and name in _SCALES and _scales(events, behind[0], shape):
            rows += behind
            continue
        if kind is not None or name not in _SECOND:
            return None
        dims = dims_of(events, behind[0])
        if name == "aten::mul" and not sizes(dims, 0) == sizes(dims, 1) == shape:
            return None
        kind = _SECOND[name]
        rows += behind
    return None


def _scales(events: Events, row: int, shape: Shape) -> bool:
    """Whether this op weighs the products by far fewer numbers."""
    dims = dims_of(events, row)
    fewer = [one for one in (sizes(dims, 0), sizes(dims, 1)) if one != shape]
    return len(fewer) == 1 and math.prod(fewer[0]) * max(shape) <= math.prod(shape)


def _weighs(events: Events, row: int, shape: Shape) -> bool:
    """Whether this op multiplies the differences by weights, of which several of them have one."""
    dims = dims_of(events, row)
    fewer = [one for one in (sizes(dims, 0), sizes(dims, 1)) if one != shape]
    return len(fewer) == 1 and math.prod(fewer[0]) > 1 and is_enlarged(fewer[0], shape)


def _summed(events: Events, readers: Readers, row: int, shape: Shape, shared: Sequence[int]) -> int | None:
    """Over which dimension the sum goes, by the shape of what is read of it; None where not over all of one."""
    seen = {
        sizes(dims, at)
        for reader in readers.looks(row)
        for dims in [dims_of(events, reader)]
        for at in range(min(len(dims), 3))
    }
    for at in reversed([at for at, size in enumerate(shape) if size in shared]):
        without, kept = (*shape[:at], *shape[at + 1 :]), (*shape[:at], 1, *shape[at + 1 :])
        if without in seen or kept in seen:
            return at
    return None


def instead_us(price: Price, one: AllPairs, trained: bool) -> tuple[float, float]:
    """(least, most) that a product takes in its place, un-profiled µs."""
    events = price.ops.events
    first = one.rows[0]
    took = float(events.dur_ns[first])
    if events.text(first) in _WHOLE:
        # Ops of the full size within it: the quickest of them reads and writes that many numbers.
        whole = [
            int(events.dur_ns[row])
            for row in backward_passes.inside(events, first)
            if one.shape in (sizes(dims_of(events, row), 0), sizes(dims_of(events, row), 1))
            and events.text(row) in ("aten::mul", "aten::div", "aten::div_", "aten::sub")
        ]
        # Where these were not recorded: two norms, a product, a quotient and a sum are five of them.
        took = float(min(whole, default=took / 5))
    trained = trained and one.kind != "absolute"
    passes = _PASSES if trained else _PASSES_ALONE
    if one.kind == "absolute":
        passes, took = _ABSOLUTE, took * one.width
    calls_us = price.added.calls_us("op_calls.pairs_trained" if trained else "op_calls.pairs")
    pass_us = price.scale.factor * took / one.width / 1e3
    return calls_us[0] + passes[0] * pass_us, calls_us[1] + passes[1] * pass_us
