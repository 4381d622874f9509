"""The cross entropy is computed of transposed logits.

## What it looks at
Calls of `cross_entropy` on three dimensions and more whose second one, the classes, lies side by side in memory: a
layer computed them in the last dimension and a transpose moved them, as the shape (samples, classes, places) asks for,
or a convolution in channels-last computed them. From 64 classes on, of pictures from 32 on. Needs shapes and strides.

## Why it costs time
The softmax copies such logits into the order of their dimensions, and runs along classes that are then far apart; its
gradient comes back in that order, and a convolution turns it round once more. With all other dimensions flattened into
one the same loss needs no copy, and classes stay side by side.

## How to fix it
`F.cross_entropy(logits.flatten(0, -2), targets.flatten())` with logits as a linear layer computed them; of others
`logits.movedim(1, -1).flatten(0, -2)`, which copies nothing. Class weights, `ignore_index` and label smoothing mean the
same.

## When to leave it
Few classes: softmax along eight numbers takes longer than along many places. Logits whose classes lie far apart in
memory already. With `reduction="none"` the losses come in one dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import (
    Category,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    constant,
    dims_of,
    sizes,
    with_backward,
)

from ..shared._examples import node, op, two_steps
from ..shared._roofline import strides_of
from ..shared._words import count, often
from ._equivalent import Equivalent, Part, worth

CONFIRMED = ""

_LOSS = "aten::cross_entropy_loss"
_COPY = "aten::copy_"
# Share of the loss's time that goes, by classes; between two of them from the least of one to the most of the other.
_OF_PLACES = (
    (64, constant("share.transposed_logits").range),
    (512, constant("share.more_transposed_logits").range),
    (4096, constant("share.most_transposed_logits").range),
)
_OF_PICTURES = (
    (32, constant("share.channels_last_logits").range),
    (64, constant("share.more_channels_last_logits").range),
)
_HOW = (
    "the share of the loss's time, backward pass included, that flattened logits saved on a CPU, with what the layer "
)
_HOW += "turns round in its gradients"
_ON_DEVICE = "the copies of logits before the softmax"
_FIX = Fix(
    "Flatten the logits and the targets instead of transposing the classes",
    "numerics",
    "loss = F.cross_entropy(logits, targets)  # logits: (samples, classes, places)",
    "loss = F.cross_entropy(logits.movedim(1, -1).flatten(0, -2), targets.flatten())",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one line; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    losses = [found for row in _calls(price) if (found := _transposed(price.ops.events, row))]
    if not losses:
        return
    rows = np.array([one.row for one in losses], np.int64)
    if price.on_device:
        one = Equivalent(parts=_copies(price, rows), how=_ON_DEVICE, shown=rows)
    else:
        parts, more_us = _shares(price, losses)
        one = Equivalent(parts=parts, how=_HOW, also_us=more_us, shown=rows)
    if known := worth(price, lines, one, min_share):
        most = max(losses, key=lambda one: one.classes)
        yield known.finding(
            f"The cross entropy of {count(most.classes)} classes goes through transposed logits{known.at}, "
            f"{often(len(losses) / price.ops.steps.count)}: {known.spent}"
            f"{', for copies of them' if price.on_device else ', with the backward pass'}.",
            {"classes": most.classes, "logits": most.dims, "spent_us": known.spent_us},
            _FIX,
        )


class _Loss(Struct, frozen=True):
    """A call on transposed logits."""

    row: int
    dims: list[int]

    @property
    def classes(self) -> int:
        """Their number."""
        return self.dims[1]

    @property
    def saved(self) -> tuple[float, float]:
        """The share of its time that goes, least and most; nothing of few classes."""
        known = _OF_PLACES if len(self.dims) == 3 else _OF_PICTURES
        least = [share[0] for at, share in known if at <= self.classes]
        most = (share[1] for at, share in known if at >= self.classes)
        return (least[-1], next(most, known[-1][1][1])) if least else (0.0, 0.0)


def _calls(price: Price) -> list[int]:
    events = price.ops.events
    called = events.of(Category.CPU_OP) & events.exactly(_LOSS) & price.ops.links.inside
    return np.flatnonzero(called & (events.dims >= 0) & (events.strides >= 0)).tolist()


def _transposed(events: Events, row: int) -> _Loss | None:
    """The call, if its classes are many, and lie side by side in memory though they are not the last dimension."""
    dims = list(sizes(dims_of(events, row), 0))
    strides = next(iter(strides_of(events.strides_table[int(events.strides[row])])), [])
    if len(dims) < 3 or len(strides) != len(dims) or strides[1] != 1 or max(dims[2:]) == 1:
        return None
    found = _Loss(row, dims)
    return found if found.saved[1] else None


def _shares(price: Price, losses: list[_Loss]) -> tuple[tuple[Part, ...], float]:
    """What goes of the calls and their backward passes; and so many µs of a step beside them, at most."""
    parts, more_us = [], 0.0
    for share in dict.fromkeys(one.saved for one in losses):
        mine = np.array([one.row for one in losses if one.saved == share], np.int64)
        rows = with_backward(price.ops.events, mine)
        parts.append((rows, min(share[0], 1.0), min(share[1], 1.0)))
        more_us += max(share[1] - 1, 0.0) * price.scale.scaled(price.spent_us(rows))
    return tuple(parts), more_us


def _copies(price: Price, rows: Ints) -> tuple[Part, ...]:
    """On a device: what copies logits into the order of their dimensions, as kernels read both orders alike."""
    events = price.ops.events
    inside = np.zeros(len(events), bool)
    inside[rows] = True
    copies = np.flatnonzero(events.exactly(_COPY) & price.ops.nesting.within(inside))
    return ((copies, 1.0, 1.0),)


def _drawn(dims: list[int], strides: list[int], on_gpu: bool = False) -> Any:
    """A layer (F), the loss (L), its softmax (S) and copy (C), their node (B) and that of the layer (G)."""
    layout: dict[str, Any] = {"Input Strides": [strides]}
    ops = {
        "L": op("cross_entropy_loss", dims, dims[:1] + dims[2:], number=1, **layout),
        "S": op("_log_softmax", dims, number=1, **layout),
        "C": op("copy_", dims, dims, launches="kernel" if on_gpu else ""),
        "B": node(1, "LogSoftmaxBackward0"),
        "G": node(2, "ConvolutionBackward0"),
    }
    lanes = (
        "[F   ][L                  ][B        ][G                                ][O   ]",
        "      [S             ]",
        "      [C     ]",
    )
    return two_steps(*lanes, gpu="        [K      ]" if on_gpu else "", **ops)


_SHAPE = [16, 1000, 128]
EXAMPLES = [
    Example(
        "a thousand classes that a transpose moved to the second dimension",
        _drawn(_SHAPE, [128_000, 1, 1000]),
        saves_us=(1300, 4200),
        says=("1,000 classes", "transposed logits", "with the backward pass"),
        fixes=("Flatten the logits",),
    ),
    Example(
        "pictures in channels-last, one class of 150 for each pixel",
        _drawn([4, 150, 32, 32], [153_600, 1, 4800, 150]),
        saves_us=(900, 6300),
    ),
    Example(
        "the same beside a GPU: the copies",
        _drawn(_SHAPE, [128_000, 1, 1000], on_gpu=True),
        saves_us=(300, 1000),
        says=("for copies of them",),
    ),
    Example("logits that a convolution computed", _drawn(_SHAPE, [128_000, 128, 1]), near_miss=True),
    Example("eight classes", _drawn([16, 8, 128], [1024, 1, 8]), near_miss=True),
    Example("flattened logits", _drawn([2048, 1000], [1000, 1])),
    Example("one place for each sample", _drawn([64, 1000, 1], [1000, 1, 1000]), near_miss=True),
]
