"""How much arithmetic and memory traffic an op is, from the shapes of its inputs."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from typing import Any

Shape = list[int]

# Products of matrices: the positions of the two factors among the inputs.
_FACTORS = {"aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::addmm": (1, 2), "aten::baddbmm": (1, 2)}
# Ops that only look at their input differently.
_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "view", "reshape", "as_strided", "as_strided_", "t", "transpose", "permute", "expand", "detach", "detach_",
        "squeeze", "unsqueeze", "select", "slice", "narrow", "alias", "flatten", "empty", "empty_like", "empty_strided",
        "resize_", "result_type", "to", "lift_fresh", "unbind", "split",
    )
)  # fmt: skip
# Bytes of a number: fp32. Half precision moves half as much, which the range of rates covers.
NUMBER_BYTES = 4
# More numbers than any memory holds: a damaged size beyond this would not fit into a column.
_MOST_NUMBERS = 2**53


# Ops repeat their shapes: a trace of millions of rows has some thousands of distinct ones.
@functools.lru_cache(maxsize=8192)
def shapes(dims: str) -> list[Shape]:
    """The shapes in the JSON text of `Input Dims`; what is no single tensor has the shape []. Not to be changed."""
    found = json.loads(dims) if dims else []
    return [one if all(isinstance(n, int) for n in one) else [] for one in found if isinstance(one, list)]


@functools.lru_cache(maxsize=8192)
def element_counts(dims: str) -> tuple[int, ...]:
    """How many numbers each tensor of an op's `Input Dims` holds, those in lists of tensors included.

    Scalars, which have no sizes, are left out; a damaged text holds none.
    """
    try:
        return tuple(_element_counts(json.loads(dims or "[]")))
    except (ValueError, TypeError, RecursionError):
        return ()


def _element_counts(dims: Any) -> Iterator[int]:
    if not isinstance(dims, list) or not dims:
        return
    if all(isinstance(size, int) for size in dims):
        yield min(math.prod(dims), _MOST_NUMBERS)
        return
    for one in dims:
        yield from _element_counts(one)


def flops(name: str, inputs: list[Shape]) -> float:
    """Floating-point operations of a matrix product, or of a convolution's forward and backward together; else 0.

    The forward op of a convolution does not record the size of its output, so all its work counts for the backward op.
    """
    if name in _FACTORS and len(inputs) > _FACTORS[name][1]:
        left, right = (inputs[i] for i in _FACTORS[name])
        return 2.0 * math.prod(left) * right[-1] if left and right else 0.0
    if name == "aten::convolution_backward" and len(inputs) > 2:
        output, weight = inputs[0], inputs[2]
        # Forward, gradient of the input and gradient of the weight: three times the same number.
        return 3 * 2.0 * math.prod(output) * math.prod(weight[1:]) if output and weight else 0.0
    return 0.0


def product_bytes(name: str, inputs: list[Shape]) -> float:
    """Bytes that a matrix product reads and writes: both factors and the result; else 0."""
    if name not in _FACTORS or not flops(name, inputs):
        return 0.0
    left, right = (inputs[i] for i in _FACTORS[name])
    return float(NUMBER_BYTES * (math.prod(left) + math.prod(right) + math.prod(left[:-1]) * right[-1]))


def traffic(name: str, inputs: list[Shape]) -> float:
    """Bytes that an elementwise op reads and writes: its inputs, and an output as large as the largest of them."""
    if name in _VIEWS:
        return 0.0
    sizes = [math.prod(shape) for shape in inputs if shape]
    return float(NUMBER_BYTES * (sum(sizes) + max(sizes))) if sizes else 0.0


def has_batch(inputs: list[Shape], batch: int) -> bool:
    """Whether an input's first dimension is the batch."""
    return any(shape and shape[0] == batch for shape in inputs)
