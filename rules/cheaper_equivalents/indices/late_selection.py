"""Elements are selected after a computation on all of them.

## What it looks at
Elementwise ops and matrix products of whose results later ops read a few elements: by `gather`, by an index, as a
slice, or as a product with a one-hot tensor (`one_hot * phi`), which is zero elsewhere. Also the cosine of an arc
cosine, with something added to a few elements between the two: for all others it returns what it began with. Profiles
do not record which tensors an op reads; `advisor run` observes it in two separate steps. Every reader of a result is
considered, and ops that mix the elements of a row (a softmax, a normalization, a sum) are never counted.

## Why it costs time
With 6,000 classes the angular margin of a face or voice recognition loss concerns one element of each row, but roots,
cosines and comparisons on all of them read and write the whole matrix of scores again and again, and so does their
backward pass. Scores of all items for one positive and four negatives are a product a thousand times too large.

## How to fix it
Select first, compute then: `own = cosine.gather(1, y[:, None])`, the margin of `own`, and `scores = cosine.scatter(1,
y[:, None], own)`. Of a product, look up the rows of the selected items: `(user[:, None] * items[chosen]).sum(-1)`.

## When to leave it
Where the other elements are needed in steps that were not observed. Products are rounded in another order. An arc
cosine limits the gradient near ±1, which the other elements then no longer see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import Drawing, Example, Finding, Fix, Ints, Lines, ObservedOps, Price, dims_of, nodes_of, sizes

from ...shared._examples import node, observed, op, two_steps
from ...shared._places import first_line, longest
from ...shared._words import count
from .._equivalent import Equivalent, Part, worth
from ..products._unread_rows import AT_LEAST, unread_part

_PRODUCTS = ("aten::mm", "aten::matmul", "aten::linear", "aten::bmm", "aten::addmm")
_NUMBER_BYTES = 4
# Rows and columns of the selected pairs are looked up and multiplied, and their gradients written, each of two tensors.
_READ_AGAIN = 6
# Copies of all elements that the few are written into: once; in the backward pass also zeros, the gradient with these
# elements taken out, and the sum of both.
_WRITTEN_BACK = (1, 4)
_HOW = (
    "elementwise ops without the fixed cost of a call, minus the copies of all elements that the few are written into; "
    "of products at least half, minus the rows and columns that are looked up; high: all of it shrinks with the "
    "elements; backward pass included"
)
# How many elements are read, and how many are computed.
_Few = tuple[int, int]


def check(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a few lines to reorder; below 3 % of the step the gain is within the noise
) -> Iterator[Finding]:
    events, by_row = price.ops.events, _rows(seen)
    if not by_row:
        return
    forward = np.array(sorted(by_row), np.int64)
    products = forward[events.exactly(*_PRODUCTS)[forward]]
    one = Equivalent(
        parts=(*_parts(price, by_row, products), *_parts(price, by_row, np.setdiff1d(forward, products))),
        how=_HOW,
        ops="long",
        instead_us=_instead_us(price, by_row, products),
        shown=forward,  # the first in the step: what is selected before it is selected before all
        at_most="medium",
    )
    if known := worth(price, lines, one, min_share):
        read, of = max(by_row.values(), key=lambda few: few[1])
        costly = first_line(lines, longest(events, forward))
        finding = known.finding(
            f"Ops{known.at} and after it compute {count(of)} elements, of which {count(read)} are read: {known.spent}, "
            "backward pass included.",
            {"read": read, "computed": of, "spent_us": known.spent_us},
            _PAIRS if len(products) else _FIRST,
        )
        yield replace(finding, where=tuple(dict.fromkeys([*finding.where, *([costly] if costly else [])])))


def _rows(seen: ObservedOps) -> dict[int, _Few]:
    """Rows of ops of whose results a few elements are read."""
    few = {place: (read, of) for place, _, read, of in seen.seen.picked}
    return {int(at[place]): one for at in seen.places for place, one in few.items() if at[place] >= 0}


def _parts(price: Price, by_row: dict[int, _Few], forward: Ints) -> Iterator[Part]:
    """What goes of these ops, and of what they recorded for the backward pass."""
    products = price.ops.events.exactly(*_PRODUCTS)
    for few in sorted({by_row[row] for row in forward.tolist()}):
        mine = np.array([row for row in forward.tolist() if by_row[row] == few], np.int64)
        nodes = nodes_of(price.ops.events, price.ops.outermost, mine)
        rows, low, high = unread_part(price, np.union1d(mine, nodes), 1 - few[0] / few[1])
        # An elementwise op has no weights to read for any number of elements.
        yield rows, low if products[mine[0]] else low / AT_LEAST, high


def _instead_us(price: Price, by_row: dict[int, _Few], products: Ints) -> tuple[float, float]:
    """What comes instead, a step: the selection, and copies of all elements or the factors of products."""
    events, steps = price.ops.events, price.ops.steps.count
    looked_up = 0.0
    for row in products.tolist():
        width = (sizes(dims_of(events, row), 0) or (0,))[-1]
        looked_up += _READ_AGAIN * by_row[row][0] * width * _NUMBER_BYTES / steps
    whole = 0.0 if len(products) else max(of for _, of in by_row.values()) * _NUMBER_BYTES
    calls = price.added.calls_us("op_calls.single")
    least, most = (price.added.copied_us(looked_up + times * whole) for times in _WRITTEN_BACK)
    return calls[0] + least[0], 2 * calls[1] + most[1]


_FIRST = Fix(
    "Select the elements first",
    "numerics",
    "phi = cosine * cos_m - torch.sqrt(1 - cosine**2) * sin_m\nscores = one_hot * phi + (1 - one_hot) * cosine",
    "own = cosine.gather(1, y[:, None])\nphi = own * cos_m - torch.sqrt(1 - own**2) * sin_m\n"
    "scores = cosine.scatter(1, y[:, None], phi)",
)
_PAIRS = Fix(
    "Multiply only the pairs that are read",
    "numerics",
    "scores = (user @ items.weight.T).gather(1, chosen)",
    "scores = (user[:, None] * items(chosen)).sum(-1)",
)

_ALL, _OWN = [96, 600], [96, 1]
_OPS: dict[str, Any] = {
    "F": op("linear", [96, 128], [600, 128], number=1),
    "A": op("sqrt", _ALL, number=2),
    "M": op("mul", _ALL, [], number=3),
    "G": op("gather", _ALL, [], _OWN, number=4),
    "L": op("mean", _OWN, number=5),
    "X": node(3, "MulBackward0"),
    "Y": node(2, "SqrtBackward0"),
    "Z": node(1),
}
_LANE = "[F     ][A      ][M      ][G][L][X     ][Y       ][Z      ]"


def _drawn(**changed: Any) -> Drawing:
    return two_steps(_LANE, **(_OPS | changed))


def _facts(*picked: tuple[int, int, int, int]) -> dict[str, Any]:
    return observed("linear sqrt mul gather mean", [[], [1], [1], [1], [1]], picked=list(picked))


_FEW = (96, 57600)
EXAMPLES = [
    Example(
        "roots of all scores, of which one of each row is gathered",
        _drawn(),
        saves_us=(2700, 3600),
        facts=_facts((1, 3, *_FEW), (2, 3, *_FEW)),
        says=("compute 57,600 elements, of which 96 are read",),
    ),
    Example(
        "the product with it, whose other scores nobody reads either",
        _drawn(),
        saves_us=(3800, 5300),
        facts=_facts((0, 3, *_FEW), (1, 3, *_FEW), (2, 3, *_FEW)),
        says=("of which 96 are read",),
    ),
    Example("the scores are read in full, too", _drawn(), None, _facts(), near_miss=True),
    Example(
        "the elements are gathered first",
        _drawn(A=op("gather", _ALL, [], _OWN, number=2), M=op("mul", _OWN, [], number=3), G=op("sqrt", _OWN, number=4)),
        facts=observed("linear gather mul sqrt mean", [[], [1], [1], [1], [1]]),
    ),
    Example("nobody looked", _drawn(), None, {}, skipped="was not recorded"),
]
