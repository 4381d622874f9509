"""One-hot vectors are multiplied instead of looking up rows.

## What it looks at
`one_hot` tensors that a linear or a recurrent layer takes as its input, found by their shape: creating the tensor,
converting it to floats, the matrix multiplication, and its part of the backward pass.

## Why it costs time
Multiplying by a one-hot vector selects one row of the weights. Done as a matrix multiplication, it fills a tensor with
as many zeros as there are classes, converts it, and multiplies all of them with all weights: work that grows with the
number of classes, for a result that an embedding lookup returns directly.

## How to fix it
`nn.Embedding(classes, width)` instead of `nn.Linear(classes, width, bias=False)`, called with the indices themselves.
To keep trained weights: `embedding.weight = nn.Parameter(linear.weight.T.contiguous())`. In front of a recurrent layer
an embedding replaces `nn.GRU(classes, hidden)` by `nn.GRU(width, hidden)`, another model with fewer weights.

## When to leave it
Inputs that are mixtures of several classes, or soft labels. The two layers have different random initializations: set
them explicitly where a training has to be repeated exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import BACKWARD, Drawing, Ev, Example, Finding, Fix, Lines, Price, backward_of

from ...shared._examples import node, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, rows_of, worth
from ._one_hot_products import Product, one_hot_products

CONFIRMED = "measured pair on a CPU: word vectors by multiplying one-hot vectors against an embedding lookup"

_ON_DEVICE = "low: creating the one-hot tensor; high: also the multiplication and its backward pass"
_HOW = "low: creating the one-hot tensor and the multiplication, minus a lookup; high: also the backward pass"


def check(
    price: Price,
    lines: Lines,
    *,
    min_share: float = 0.02,  # two lines to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    found, steps = one_hot_products(price.ops), price.ops.steps.count
    if not found:
        return
    made = rows_of(*sorted({row for one in found for row in one.made}))
    layers, recurrent = (
        rows_of(*sorted({one.product for one in found if one.recurrent is kind})) for kind in (False, True)
    )
    # The weights' gradient is as large with a look-up; without a device it is known what a look-up takes at most. A
    # recurrent layer multiplies what is looked up, which is narrower.
    multiplied = 0.0 if price.on_device else 1.0
    behind = backward_of(price.ops.events, np.concatenate((layers, recurrent)))
    every = ((made, 1.0, 1.0), (layers, multiplied, 1.0), (recurrent, 0.0, 1.0), (behind, 0.0, 1.0))
    parts = tuple(part for part in every if len(part[0]))
    one = Equivalent(
        parts=parts,
        how=_ON_DEVICE if price.on_device else _HOW,
        instead_us=_look_up_us(price, found),
        ops="replayed",
        at_most="high",
    )
    if known := worth(price, lines, one, min_share):
        largest = max(found, key=lambda one: one.classes)
        classes, width = largest.classes, largest.width
        yield known.finding(
            f"One-hot vectors of {count(classes)} classes are multiplied{known.at} to select rows of the weights: "
            f"{known.spent} with the backward pass.",
            {
                "classes": classes,
                "surely_us": sum(least * price.spent_us(rows) for rows, least, _ in parts),
                "whole_us": known.spent_us,
                "products": len(found) / steps,
            },
            _before_layer(classes)
            if largest.recurrent
            else Fix(
                "Use `nn.Embedding` with the indices",
                "numerics",
                f"self.vectors = nn.Linear({classes}, {width}, bias=False)\n"
                f"y = self.vectors(F.one_hot(index, {classes}).float())",
                f"self.vectors = nn.Embedding({classes}, {width})\ny = self.vectors(index)",
            ),
        )


def _before_layer(classes: int) -> Fix:
    """An embedding in front of a recurrent layer, whose weights get another shape by it."""
    return Fix(
        "Use `nn.Embedding` in front of the recurrent layer",
        "semantics",
        f"self.gru = nn.GRU({classes}, hidden)\noutput, state = self.gru(F.one_hot(index, {classes}).float(), state)",
        f"self.vectors = nn.Embedding({classes}, width)\nself.gru = nn.GRU(width, hidden)\n"
        "output, state = self.gru(self.vectors(index), state)",
    )


def _look_up_us(price: Price, found: list[Product]) -> tuple[float, float]:
    """(least, most) that looking the rows up takes instead, un-profiled µs per step."""
    calls, steps = price.added.calls_us("op_calls.single"), price.ops.steps.count
    copies = [price.added.copied_us(4 * one.vectors * one.width) for one in found]
    ends = [sum(calls[end] + copied[end] for copied in copies) / steps for end in (0, 1)]
    return ends[0], ends[1]


_ONE_HOT, _WEIGHTS = [128, 10000], [64, 10000]


# In a layer (G), whose product is one of the classes with all of its weights.
_RECURRENT: dict[str, Any] = {
    "G": op("gru", [1, 128, 10000], [1, 128, 64], []),
    "L": op("linear", [1, *_ONE_HOT], _WEIGHTS, number=5),
}


def _drawn(
    gpu: str = "", cpu: tuple[str, ...] = ("[H    ][T   ][L   ][Z   ][B    ]", " [S ]"), **changed: Any
) -> Drawing:
    """Indices are spread (H, S) and converted (T), and multiplied (L); its node (Z), and more (B)."""
    launches = "kernel" if gpu else None
    ops: dict[str, Any] = {
        "H": op("one_hot", [128], []),
        "S": op("scatter_", _ONE_HOT, [], [128, 1], []),
        "T": op("to", _ONE_HOT, launches=launches),
        "L": op("linear", _ONE_HOT, _WEIGHTS, [], number=5),
        "Z": node(5, "MmBackward0", launches=launches),
        "B": Ev(BACKWARD.name, launches=launches),
    }
    return two_steps(*cpu, gpu=gpu, **(ops | changed))


_EMBEDDING = two_steps("[E   ][B       ]", E=op("embedding", [10000, 64], [128]))

EXAMPLES = [
    Example("a linear layer picks word vectors", _drawn(), saves_us=(1200, 2500), says=("10,000 classes",)),
    Example("the same on a GPU", _drawn(gpu="  [E   ][E   ][K   ][K   ][K    ]"), saves_us=(500, 2700)),
    Example(
        "one-hot labels of a loss are not multiplied with weights",
        _drawn(L=op("mul", _ONE_HOT, _ONE_HOT, number=5)),
        near_miss=True,
    ),
    Example(
        "a recurrent layer picks columns of its weights",
        _drawn(cpu=("[H    ][T   ][G     ][Z   ][B    ]", " [S ]         [L  ]"), **_RECURRENT),
        saves_us=(500, 2500),
        says=("10,000 classes",),
        fixes=("in front of the recurrent layer",),
    ),
    Example("an embedding", _EMBEDDING, None),
]
