"""A layer runs after its input is upsampled or expanded instead of before.

## What it looks at
Linear layers and 1x1 convolutions (stride 1, no padding) that are the only reader of a tensor that was enlarged before
them: feature maps by `interpolate` (nearest, linear, cubic), and tensors that were expanded or repeated and then joined
with others by `cat`, as for all pairs of elements, or for a summary joined to each position. What reads a tensor is
observed by `advisor run` in one step. Anything between the two (an activation, a normalization, dropout) rules it out.

## Why it costs time
Such a layer processes each position independently, so that for repeated inputs it computes the same result many times:
twenty times for the pairs of twenty elements, sixteen times for pixels of a map upsampled fourfold. And the enlarged
tensor has the many channels of the layer's input, not the few of its output.

## How to fix it
Feature maps: `F.interpolate(classify(x), size)` in place of `classify(F.interpolate(x, size))`; the weights of an
interpolation sum to one, so that a bias stays correct. Joined tensors: split the layer, `first, second =
layer.weight.chunk(2, 1)`, apply each part to its own tensor, and add the results by broadcasting.

## When to leave it
Where the enlarged tensor is needed for something else as well. Sums are computed in another order: results differ in
the last digits, in bfloat16 a little more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    BACKWARD,
    FORWARD,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    Readers,
    backward_of,
    constant,
    draw,
)

from ..shared._words import count
from ._equivalent import Equivalent, rows_of, worth
from ._late_layers import Kind, LateLayer, late_layers

CONFIRMED = "two measured pairs on a CPU: a classifier on upsampled maps, and a layer over all pairs of a scene"

# One more small layer with its backward pass, un-profiled.
_CALL_US = constant("calls.small_layer_us").value


_ON_DEVICE = "in proportion to the remaining work; low: the remaining work takes twice its share"
_HOW = (
    "these ops and their backward pass in proportion to the remaining work; low: the remaining work takes twice its "
    "share, and each additional layer as long as the fastest other one"
)


def check(
    price: Price,
    lines: Lines | None,
    readers: Readers,
    *,
    min_share: float = 0.03,  # two lines to exchange; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    steps, by_kind = price.ops.steps.count, defaultdict(list)
    for late in late_layers(price.ops.events, price.ops.outermost, readers):
        by_kind[late.kind].append(late)
    for kind, found in by_kind.items():
        more_us = sum(one.calls * _call_us(price.ops.events, one, found, price.scale.factor) for one in found) / steps
        firsts = [row for one in sorted(found, key=lambda one: -one.layer.positions) for row in one.where]
        one = Equivalent(
            parts=tuple(part for one in found for part in one.parts),
            how=_ON_DEVICE if price.on_device else _HOW,
            instead_us=(0.0, more_us),
            shown=rows_of(*firsts),
        )
        if known := worth(price, lines, one, min_share):
            largest = max(found, key=lambda one: one.layer.positions * one.layer.before)
            yield known.finding(
                f"{_WHAT[kind]}{known.at}, and then a layer from {count(largest.layer.before)} to "
                f"{count(largest.layer.after)} channels runs on each of {count(largest.layer.positions)} positions, "
                f"{count(round(largest.growth, 1))} times as many as before: {known.spent}, backward pass included.",
                {"layers": len(found) / steps, "growth": largest.growth, "spent_us": known.spent_us},
                _FIXES[kind],
            )


_WHAT: dict[Kind, str] = {"enlarged": "Feature maps are upsampled", "joined": "Tensors are expanded and joined"}
_FIXES: dict[Kind, Fix] = {
    "enlarged": Fix(
        "Apply the layer before upsampling",
        "numerics",
        "return classify(F.interpolate(x, size=size, mode=mode))",
        "return F.interpolate(classify(x), size=size, mode=mode)",
    ),
    "joined": Fix(
        "Split the layer, apply each part before expanding, and add the results",
        "numerics",
        "mine, theirs = x.unsqueeze(2).expand(shape), x.unsqueeze(1).expand(shape)\n"
        "y = layer(torch.cat([mine, theirs], dim=-1))",
        "of_mine, of_theirs = layer.weight.chunk(2, dim=1)\n"
        "y = F.linear(x, of_mine, layer.bias).unsqueeze(2) + F.linear(x, of_theirs).unsqueeze(1)",
    ),
}


def _call_us(events: Events, late: LateLayer, found: list[LateLayer], factor: float) -> float:
    """What one more small layer takes with its backward pass: the quickest of its kind in this script."""
    own = late.layer.row
    known = np.array([one.layer.row for one in found], np.int64)
    others = np.flatnonzero(events.name == events.name[own])
    others = others[~np.isin(others, known)]
    forward, backward = float(events.dur_ns[own]), float(events.dur_ns[backward_of(events, np.array([own]))].sum())
    if not len(others) or not forward:
        return _CALL_US if backward else _CALL_US / 4
    quickest = float(events.dur_ns[others].min())
    return min(quickest * (1 + backward / forward), forward + backward) / 1e3 * factor


def _op(name: str, number: int, dims: list[Any], values: list[str] | None = None, strides: Any = None) -> Ev:
    known: dict[str, Any] = {"Sequence number": number, "Fwd thread id": 0}
    known |= {"Concrete Inputs": ["", "", "", *values]} if values else {}
    return Ev(f"aten::{name}", dims=dims, args=known | ({"Input Strides": strides} if strides else {}))


def _node(number: int) -> Ev:
    return Ev(BACKWARD.name, args={"Sequence number": number, "Fwd thread id": 1})


def _seen(*names: str, waits: list[list[int]]) -> dict[str, Any]:
    known = [f"aten::{name}" for name in names]
    index = list(dict.fromkeys(known))
    return {"reused": {"names": index, "ops": [index.index(name) for name in known], "waits": waits}}


# A layer (F), what enlarges or joins (U), the late layer (A), a loss (L), and the nodes of the three.
_STEPS = """
    step   [1                                        ][2                                        ]
    cpu    [F][U    ][A      ][L][X][Y      ][Z    ]   [G][V    ][B      ][M][W][P      ][Q    ]
    """
_SMALL, _LARGE, _WEIGHT = [8, 48, 16, 16], [8, 48, 64, 64], [5, 48, 1, 1]
_ONE, _LINES = ["[1, 1]", "[0, 0]"], [[196608, 4096, 64, 1], [48, 1, 1, 1]]


def _both_steps(layer: Any, before: Any) -> dict[str, Any]:
    """Both steps of the drawing; layer, before: of a number the late layer, and what it reads."""
    nodes = {"X": 3, "Y": 2, "Z": 1, "W": 6, "P": 5, "Q": 4}
    return {
        **{"F": FORWARD, "U": before(1), "A": layer(2), "L": _op("cross_entropy_loss", 3, [[8, 5], [8]])},
        **{"G": FORWARD, "V": before(4), "B": layer(5), "M": _op("cross_entropy_loss", 6, [[8, 5], [8]])},
        **{letter: _node(number) for letter, number in nodes.items()},
    }


def _maps(weight: list[int] = _WEIGHT, values: list[str] = _ONE, strides: Any = _LINES) -> dict[str, Any]:
    return _both_steps(
        lambda number: _op("conv2d", number, [_LARGE, weight, weight[:1]], values, strides),
        lambda number: _op("upsample_bilinear2d", number, [_SMALL, [], [], []]),
    )


def _pairs(expanded: bool = True, width: int = 64) -> dict[str, Any]:
    each = [16, 20, 20, width]
    strides = [[400 * width, 20 * width, width, 1]] * 2
    strides = [[20 * width, width, 0, 1], [20 * width, 0, width, 1]] if expanded else strides
    return _both_steps(
        lambda number: _op("linear", number, [[16, 20, 20, 2 * width], [64, 2 * width], [64]]),
        lambda number: _op("cat", number, [[each, each], []], strides=[strides, []]),
    )


_CHAIN = [[], [1], [1], [1]]
_OF_MAPS = _seen("linear", "upsample_bilinear2d", "conv2d", "cross_entropy_loss", waits=_CHAIN)
_OF_PAIRS = _seen("linear", "cat", "linear", "cross_entropy_loss", waits=_CHAIN)

EXAMPLES = [
    Example(
        "classes of enlarged maps",
        draw(_STEPS, us=100, **_maps()),
        facts=_OF_MAPS,
        saves_us=(2600, 3000),
        says=("from 48 to 5 channels", "16 times as many"),
    ),
    Example(
        "the same with channels side by side: fewer of them may take as long",
        draw(_STEPS, us=100, **_maps(strides=[[196608, 1, 3072, 48], [48, 1, 1, 1]])),
        facts=_OF_MAPS,
        saves_us=(1500, 3000),
    ),
    Example(
        "all pairs of a scene",
        draw(_STEPS, us=100, **_pairs()),
        facts=_OF_PAIRS,
        saves_us=(1500, 2900),
        says=("are expanded and joined", "from 128 to 64 channels"),
    ),
    Example(
        "a convolution of 3 x 3 pixels mixes them",
        draw(_STEPS, us=100, **_maps([5, 48, 3, 3], ["[1, 1]", "[1, 1]"])),
        facts=_OF_MAPS,
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "an activation stands between",
        draw(
            _STEPS, us=100, **(_maps() | {"F": _op("upsample_bilinear2d", 1, [_SMALL]), "U": _op("relu", 1, [_LARGE])})
        ),
        facts=_seen("upsample_bilinear2d", "relu", "conv2d", "cross_entropy_loss", waits=_CHAIN),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "the enlarged maps are read once more",
        draw(_STEPS, us=100, **_maps()),
        facts=_seen("linear", "upsample_bilinear2d", "conv2d", "cross_entropy_loss", waits=[[], [1], [1], [1, 2]]),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "two tensors of which none was expanded are joined",
        draw(_STEPS, us=100, **_pairs(expanded=False)),
        facts=_OF_PAIRS,
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "coordinates of all pairs: adding the results would write 64 numbers for 4",
        draw(_STEPS, us=100, **_pairs(width=2)),
        facts=_OF_PAIRS,
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "the layer comes first",
        draw(
            _STEPS,
            us=100,
            **_both_steps(
                lambda number: _op("upsample_bilinear2d", number, [[8, 5, 16, 16], [], [], []]),
                lambda number: _op("conv2d", number, [_SMALL, _WEIGHT, [5]], _ONE),
            ),
        ),
        facts=_seen("linear", "conv2d", "upsample_bilinear2d", "cross_entropy_loss", waits=_CHAIN),
        saves_us=None,
    ),
]
