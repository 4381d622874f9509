"""All pairs are computed, but only some are read.

## What it looks at
Ops that compute something for each pair of two lists of equal length (differences, overlaps of boxes, products), and
of whose results later ops take only the diagonal: each element with the one at the same place. Likewise of lists of
any length of whose pairs only blocks are read, as those of each sample of a batch. Profiles do not record which
elements of a tensor are read; `advisor run` observes it in separate steps. Every reader of a result is considered.

## Why it costs time
Of N x N pairs N are used. For 100 matched boxes, 99 of 100 overlaps and their gradients are computed for nothing.

## How to fix it
Compare elements of the same place: `(x * y).sum(-1)` instead of `(x @ y.T).diag()`, `torch.norm(x - y, dim=-1)` instead
of the diagonal of `torch.cdist(x, y)`, `torchvision.ops.generalized_box_iou_loss(x, y)` instead of
`torch.diag(generalized_box_iou(x, y))`.

## When to leave it
Where the other pairs are needed in steps that were not observed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import Example, Finding, Fix, Lines, ObservedOps, Price, backward_of

from ...shared._examples import node, observed, op, two_steps
from ...shared._places import longest
from ...shared._words import count, percent
from .._equivalent import Equivalent, worth
from ._unread_rows import unread_part

_HOW = (
    "low: half of that work, without the fixed cost of a call; high: it shrinks to one pair of each; backward pass "
    "included"
)


def check(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one expression to change; below 2 % of the step the gain is within the noise
) -> Iterator[Finding]:
    yield from _blocks(price, seen, lines, min_share)
    events, by_row = price.ops.events, _pairs(seen)
    if not by_row:
        return
    forward = np.array(sorted(by_row), np.int64)
    for row in forward.tolist():
        by_row |= dict.fromkeys(backward_of(events, np.array([row])).tolist(), by_row[row])
    parts = [
        unread_part(price, np.array(sorted(row for row, pairs in by_row.items() if pairs == of), np.int64), 1 - 1 / of)
        for of in sorted(set(by_row.values()))
    ]
    one = Equivalent(parts=tuple(parts), how=_HOW, ops="long", shown=longest(events, forward))
    if known := worth(price, lines, one, min_share):
        most = max(by_row.values())
        yield known.finding(
            f"All pairs of {count(most)} and {count(most)} elements are computed{known.at}, but only the diagonal of "
            f"the result is read: {known.spent}, backward pass included.",
            {"pairs": most * most, "read": most, "spent_us": known.spent_us},
            _SAME_PLACE,
        )


def _blocks(price: Price, seen: ObservedOps, lines: Lines | None, min_share: float) -> Iterator[Finding]:
    """Pairs of which each part of a batch reads its own."""
    of_op = {place: (read, pairs) for place, read, *pairs in seen.seen.blocks}
    known_rows = {int(at[place]): of for at in seen.places for place, of in of_op.items() if at[place] >= 0}
    if not known_rows:
        return
    events, forward = price.ops.events, np.array(sorted(known_rows), np.int64)
    reads: dict[int, float] = {}
    for row in forward.tolist():
        behind = backward_of(events, np.array([row])).tolist()
        reads |= dict.fromkeys((row, *behind), known_rows[row][0])
    parts = [
        unread_part(price, np.array(sorted(row for row, read in reads.items() if read == of), np.int64), 1 - of)
        for of in sorted(set(reads.values()))
    ]
    shown = longest(events, forward)
    one = Equivalent(parts=tuple(parts), how=_HOW_BLOCKS, ops="long", shown=shown)
    if known := worth(price, lines, one, min_share):
        read, (first, second) = known_rows[int(shown[0])]
        yield known.finding(
            f"All pairs of {count(first)} and {count(second)} elements are computed{known.at}, but only "
            f"{percent(read)} of the result is read, part by part: {known.spent}.",
            {"pairs": first * second, "read": read, "spent_us": known.spent_us},
            _OWN_PAIRS,
        )


def _pairs(seen: ObservedOps) -> dict[int, int]:
    """Rows of the ops on pairs of which the diagonal is read -> how many pairs they make of each."""
    of_op = {place: of for place, _, of in seen.seen.diagonals}
    return {int(at[place]): of for at in seen.places for place, of in of_op.items() if at[place] >= 0}


_HOW_BLOCKS = "low: half of the work on pairs that are not read, without the fixed cost of a call; high: all of it"
_OWN_PAIRS = Fix(
    "Compute the pairs of each sample by itself, or of all at once with its own dimension for the batch",
    "numerics",
    "cost = torch.cdist(boxes.flatten(0, 1), torch.cat(targets))\n"
    "parts = [part[i] for i, part in enumerate(cost.view(batch, queries, -1).split(counts, -1))]",
    "padded = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True)\n"
    "cost = torch.cdist(boxes, padded)  # batch, queries, most targets of a sample",
)
_SAME_PLACE = Fix(
    "Compare only elements at the same place",
    "numerics",
    "similarity = torch.diag(x @ y.T)",
    "similarity = (x * y).sum(-1)",
)
_PAIRS = [200, 200]
_OPS: dict[str, Any] = {
    "F": op("linear", [200, 64], [64, 64], [64], number=1),
    "M": op("sub", [200, 1, 64], [200, 64], number=2),
    "S": op("sum", [200, 200, 64], number=3),
    "D": op("diag", _PAIRS, number=4),
    "X": node(3, "SumBackward1"),
    "Y": node(2, "SubBackward0"),
    "Z": node(1),
}
_LANE = "[F  ][M     ][S   ][D][X    ][Y    ][Z  ]"


def _facts(diagonals: list[tuple[int, int, int]]) -> dict[str, Any]:
    return observed("linear sub sum diag", [[], [1], [1], [1]], diagonals=diagonals)


EXAMPLES = [
    Example(
        "differences of all pairs of 200 outputs, of which each with its own label counts",
        two_steps(_LANE, **_OPS),
        saves_us=(1100, 2700),
        facts=_facts([(1, 3, 200), (2, 3, 200)]),
        says=("All pairs of 200 and 200", "only the diagonal"),
    ),
    Example(
        "costs of all boxes of a batch of eight, of which each picture reads its own",
        two_steps(_LANE, **_OPS),
        saves_us=(1000, 2500),
        facts=observed("linear sub sum diag", [[], [1], [1], [1]], blocks=[(1, 0.125, 200, 200), (2, 0.125, 200, 200)]),
        says=("All pairs of 200 and 200", "only 12 % of the result"),
        fixes=("pad_sequence",),
    ),
    Example("the other pairs are read, too", two_steps(_LANE, **_OPS), None, _facts([]), near_miss=True),
    Example(
        "elements at the same place",
        two_steps(_LANE, **(_OPS | {"M": op("sub", [200, 64], [200, 64], number=2)})),
        facts=_facts([]),
    ),
    Example("nobody looked", two_steps(_LANE, **_OPS), None, {}, skipped="was not recorded"),
]
