"""A convolution is written as `unfold` and a matrix product.

## What it looks at
`F.unfold`, or `nn.Unfold`, of images into windows that overlap, whose result is read by one product with a matrix of as
many numbers for each output as a window has. `advisor run` observes in one step that nothing else reads the windows.

## Why it costs time
Every pixel is copied as often as windows hold it, nine times for 3 x 3, before it is multiplied; the backward pass adds
as many copies of its gradient up again.

## How to fix it
`F.conv2d(x, weight.view(out, channels, 3, 3), padding=1)` computes the same sums without the copies. With the backward
pass it took 5 to 53 % of the time of the written-out form (a CPU, 16 sizes and forms).

## When to leave it
Windows that do not overlap, as patches of an image: `conv2d` was no faster there, and they are not reported. Where each
position has weights of its own, it is no convolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from advisor.api import (
    Drawing,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    Readers,
    constant,
    dims_of,
    sizes,
    with_nodes,
)

from ..shared._examples import node, observed, op, two_steps
from ..shared._words import often
from ._equivalent import Equivalent, rows_of, worth
from .products._projections import only_reader

_LEFT = constant("share.unfolded_convolution").range
_UNFOLD = "aten::im2col"
_PRODUCTS = frozenset(("aten::matmul", "aten::linear", "aten::einsum"))
# So many times as many numbers as the image has: of windows beside each other there are as many.
_OVERLAP = 2
_HOW = "what conv2d left of these ops' time, backward pass included, in measurements on a CPU"
_FIX = Fix(
    "Use `F.conv2d`",
    "numerics",
    "columns = F.unfold(x, 3, padding=1)\ny = (weight @ columns).view(len(x), -1, *x.shape[2:])",
    "y = F.conv2d(x, weight.view(len(weight), -1, 3, 3), padding=1)",
)


def check(
    price: Price,
    lines: Lines | None,
    readers: Readers,
    *,
    min_share: float = 0.03,  # one expression; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, ops = price.ops.events, price.ops.outermost
    found = [pair for row in price.ops.outermost_named(_UNFOLD).tolist() if (pair := _convolved(events, readers, row))]
    if not found:
        return
    rows = rows_of(*(row for pair in found for row in pair))
    one = Equivalent(
        parts=((with_nodes(events, ops, rows), 1 - _LEFT[1], 1 - _LEFT[0]),),
        how=_HOW,
        timed_on_device=False,
        shown=rows,
    )
    if known := worth(price, lines, one, min_share):
        calls = len(found) / price.ops.steps.count
        yield known.finding(
            f"A convolution is computed by `unfold` and a matrix product{known.at}, {often(calls)}: {known.spent}, "
            "backward pass included.",
            {"calls": calls, "spent_us": known.spent_us},
            _FIX,
        )


def _convolved(events: Events, readers: Readers, row: int) -> tuple[int, int] | None:
    """What unfolds windows that overlap, and the product with one matrix that alone reads them."""
    image = sizes(dims_of(events, row), 0)
    product = only_reader(events, readers, row) if len(image) == 4 else -1
    if product < 0 or events.text(product) not in _PRODUCTS:
        return None
    given: list[Any] = dims_of(events, product)
    if events.text(product) == "aten::einsum":
        given = next((one for one in given if isinstance(one, list) and one and isinstance(one[0], list)), [])
    shapes = [sizes(given, at) for at in range(min(len(given), 2))]
    columns = next((one for one in shapes if len(one) == 3), ())
    weight = next((one for one in shapes if len(one) == 2), ())
    # A window has several numbers of each channel, and pixels lie in several windows.
    windows = any(one in columns and one > image[1] and one % image[1] == 0 for one in weight)
    return (row, product) if windows and math.prod(columns) >= _OVERLAP * math.prod(image) else None


_SHAPE, _WEIGHT, _COLUMNS = [16, 16, 48, 48], [32, 144], [16, 144, 2304]


def _drawn(**changed: Any) -> Drawing:
    """A convolution (C), windows (U), their product (P), a loss (L), and the nodes."""
    ops: dict[str, Any] = {
        "C": op("conv2d", [16, 3, 48, 48], [16, 3, 3, 3], number=1),
        "U": op("im2col", _SHAPE, number=2),
        "P": op("matmul", _WEIGHT, _COLUMNS, number=3),
        "L": op("mean", [16, 32, 2304], number=4),
        **{word: node(4 - at) for at, word in enumerate("WXYZ")},
    }
    return two_steps("[C][U    ][P    ][L][W][X      ][Y     ][Z]", **(ops | changed))


_FACTS = observed("conv2d im2col matmul mean", [[], [1], [1], [1]])
EXAMPLES = [
    Example(
        "a convolution as tutorials write it out",
        _drawn(),
        saves_us=(500, 4500),
        facts=_FACTS,
        says=("by `unfold` and a matrix product",),
        fixes=("F.conv2d",),
    ),
    Example("patches beside each other", _drawn(P=op("matmul", _WEIGHT, [16, 144, 256], number=3)), facts=_FACTS,
            near_miss=True),
    Example("weights of its own for each position", _drawn(P=op("matmul", [32, 144, 2304], _COLUMNS, number=3)),
            facts=_FACTS, near_miss=True),
    Example(
        "windows that are read again",
        _drawn(L=op("mul", _COLUMNS, _COLUMNS, number=4)),
        facts=observed("conv2d im2col matmul mul", [[], [1], [1], [1, 2]]),
        near_miss=True,
    ),
    Example("nobody looked", _drawn(), None, {}, skipped="was not recorded"),
]  # fmt: skip
