"""A network runs on copies of the same rows.

## What it looks at
Tensors whose rows are repeated, by `repeat_interleave`, `repeat`, or `expand` and a copy of what it shows, and the
layers that alone read the copies, one after the other: linear layers, activations, norms of each row, convolutions and
recurrent layers. `advisor run` observes in one step what reads a tensor. Dropout ends the row of layers, as it drops
something else in each copy; so does whatever reads another tensor as well.

## Why it costs time
A user with twenty candidates, or a question with twelve answers, is encoded twenty or twelve times, with the same
result each time, and the backward pass adds up as many equal gradients.

## How to fix it
Run these layers first, and repeat their result: `encode(user).repeat_interleave(n, dim=0)`, or
`encode(user).unsqueeze(1)`, which broadcasts without a copy. In two scripts the step took 12.6 ms before and 2.3
after (20 copies, three linear layers), 16.8 and 5.0 (12 copies, a recurrent layer; a CPU of two cores).

## When to leave it
Where the copies differ in a way that no op shows, as by a hook that changes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import (
    Drawing,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    Readers,
    constant,
    dims_of,
    sizes,
    with_nodes,
)

from ..shared._examples import node, observed, op, two_steps
from ..shared._words import count, plural
from ._equivalent import Equivalent, rows_of, worth
from .products._broadcast_origins import COPIES, originals

# What makes a copy of what it looks at, where that does not lie in one piece.
_PIECES = frozenset(f"aten::{name}" for name in ("reshape", "contiguous", "clone", "flatten"))
# Layers that work on each position by itself; and those that work on each sample of a batch by itself.
_BY_POSITION = frozenset(
    f"aten::{name}"
    for name in ("linear", "relu", "gelu", "silu", "elu", "leaky_relu", "tanh", "sigmoid", "layer_norm", "rms_norm")
)
_BY_SAMPLE = frozenset(
    f"aten::{name}" for name in ("gru", "lstm", "rnn_tanh", "rnn_relu", "conv1d", "conv2d", "conv3d", "max_pool2d")
)
_LEAST_COPIES = 2
# What is left of a layer that comes first takes so many times its share.
_LEFT = constant("share.late_layer").value
_HOW = "these layers and their backward pass in proportion to the rows; low: what is left takes twice its share"
_FIX = Fix(
    "Run these layers first, and repeat their result",
    "numerics",
    "users = user.repeat_interleave(n, dim=0)\nscores = score(tower(users), items)",
    "scores = score(tower(user).repeat_interleave(n, dim=0), items)",
)


class _Repeated(Struct, frozen=True):
    """row: what copies;  rows: so many it had;  copies: of each;  layers: the ops that alone read the copies."""

    row: int
    rows: int
    copies: float
    layers: tuple[int, ...]


def check(
    price: Price,
    lines: Lines | None,
    readers: Readers,
    *,
    min_share: float = 0.03,  # two lines to exchange; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, ops = price.ops.events, price.ops.outermost
    found = list(_repeated(events, ops, readers))
    if not found:
        return
    parts = []
    for one in found:
        rows = rows_of(*one.layers)
        left = 1 / one.copies
        goes = (1 - min(_LEFT * left, 1.0), 1 - left)
        parts.append((with_nodes(events, ops, rows), *goes))
    shown = rows_of(*(row for one in found for row in (one.row, *one.layers)))
    if known := worth(price, lines, Equivalent(parts=tuple(parts), how=_HOW, shown=shown), min_share):
        most = max(found, key=lambda one: one.copies * one.rows * len(one.layers))
        yield known.finding(
            f"{count(round(most.copies))} copies of each of {count(most.rows)} rows go through "
            f"{plural(len(most.layers), 'layer')} that nothing else enters{known.at}: {known.spent}, backward pass "
            "included.",
            {"copies": most.copies, "rows": most.rows, "layers": len(most.layers), "spent_us": known.spent_us},
            _FIX,
        )


def _repeated(events: Events, ops: Ints, readers: Readers) -> Iterator[_Repeated]:
    for at in np.flatnonzero(events.exactly(*COPIES, *_PIECES)[ops]).tolist():
        row = int(ops[at])
        shape = sizes(dims_of(events, row), 0)
        small = shape if events.text(row) in COPIES else originals(events, ops[: at + 1], 1)[0]
        if not small or (events.text(row) in _PIECES and small == shape):
            continue
        layers = list(_layers(events, readers, row))
        if not layers:
            continue
        copied = sizes(dims_of(events, layers[0]), 0)
        copies = math.prod(copied) / max(math.prod(small), 1)
        # A layer that works on samples may not see what is repeated within one, as along time.
        by_sample = any(events.text(one) in _BY_SAMPLE for one in layers)
        alike = small[-(len(copied) - 1) :] == copied[1:] if by_sample else small[-1:] == copied[-1:]
        if copies >= _LEAST_COPIES and alike:
            yield _Repeated(row, math.prod(small) // small[-1], copies, tuple(layers))


def _layers(events: Events, readers: Readers, row: int) -> Iterator[int]:
    """The layers that alone read what this op made, one after the other."""
    while len(behind := readers.of(row)) == 1:
        row = behind[0]
        name = events.text(row)
        if name in ("aten::reshape", "aten::contiguous", "aten::flatten"):
            continue
        if name not in _BY_POSITION and name not in _BY_SAMPLE:
            return
        yield row


_NAMES = "linear repeat_interleave linear relu linear mul"
_CHAIN: list[list[int]] = [[], [1], [1], [1], [1], [1]]
_SMALL, _LARGE, _WEIGHT = [128, 64], [2560, 64], [64, 64]


_REPEATED = "[F][R  ][A     ][E   ][B     ][S][U][V      ][W   ][X      ][Y][Z]"
_EXPANDED = _REPEATED.replace("[R  ]", "[P][R]")


def _drawn(lane: str = _REPEATED, **changed: Any) -> Drawing:
    """A layer (F), copies (R), a tower of two layers (A, E, B), what reads another tensor (S), and the nodes."""
    ops: dict[str, Any] = {
        "F": op("linear", _SMALL, _WEIGHT, [64], number=1),
        "R": op("repeat_interleave", _SMALL, number=2),
        "A": op("linear", _LARGE, _WEIGHT, [64], number=3),
        "E": op("relu", _LARGE, number=4),
        "B": op("linear", _LARGE, _WEIGHT, [64], number=5),
        "S": op("mul", _LARGE, _LARGE, number=6),
        **{word: node(6 - at) for at, word in enumerate("UVWXYZ")},
    }
    return two_steps(lane, **(ops | changed))


EXAMPLES = [
    Example(
        "a tower for users that runs once for each of twenty candidates",
        _drawn(),
        saves_us=(2000, 4600),
        facts=observed(_NAMES, _CHAIN),
        says=("20 copies of each of 128 rows go through 3 layers",),
        fixes=("repeat their result",),
    ),
    Example(
        "the same by `expand`, and a copy of what it shows",
        _drawn(_EXPANDED, P=op("expand", [128, 1, 64]), R=op("reshape", [128, 20, 64], number=2)),
        saves_us=(2000, 4600),
        facts=observed(_NAMES.replace("repeat_interleave", "expand reshape"), [[], [1], *([[1]] * 5)]),
        says=("20 copies of each of 128 rows",),
    ),
    Example(
        "the copies are joined with candidates before any layer",
        _drawn(A=op("cat", [_LARGE, _LARGE], number=3)),
        facts=observed(_NAMES.replace("linear relu", "cat relu"), _CHAIN),
        near_miss=True,
    ),
    Example(
        "noise is added to each copy",
        _drawn(A=op("add", _LARGE, _LARGE, number=3)),
        facts=observed(_NAMES.replace("linear relu", "add relu"), _CHAIN),
        near_miss=True,
    ),
    Example(
        "a state that is repeated along time for a recurrent layer",
        _drawn(
            R=op("repeat", [128, 1, 64], number=2),
            A=op("gru", [128, 20, 64], number=3),
            E=op("mul", [128, 20, 64], [128, 20, 64], number=4),
        ),
        facts=observed(
            _NAMES.replace("repeat_interleave linear relu", "repeat gru mul"), [[], [1], [1], [1], [1], [1]]
        ),
        near_miss=True,
    ),
    Example("a reshape that shows nothing again", _drawn(R=op("reshape", [20, 128, 64], number=2)), None, {},
            skipped="was not recorded"),
]  # fmt: skip
