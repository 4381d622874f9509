"""A layer runs after its input is upsampled or expanded instead of before.

## What it looks at
Linear layers, products with a matrix and 1x1 convolutions (stride 1, no padding) that are the only reader of a tensor
that was enlarged before them: feature maps by `interpolate` (nearest, linear, cubic), and tensors that were expanded or
repeated and then joined with others by `cat`, as for all pairs of elements, or for a summary joined to each position.
`advisor run` observes in one step what reads a tensor. Anything between the two (an activation, a normalization,
dropout) rules it out.

## Why it costs time
Such a layer processes each position independently, so that for repeated inputs it computes the same result many times:
twenty times for the pairs of twenty elements, sixteen times for pixels of a map upsampled fourfold. And the enlarged
tensor has the many channels of the layer's input, not the few of its output.

## How to fix it
Feature maps: `F.interpolate(classify(x), size)` instead of `classify(F.interpolate(x, size))`; the weights of an
interpolation sum to one, so that a bias stays correct. Joined tensors: split the layer, `first, second =
layer.weight.chunk(2, 1)`, apply each part to its own tensor, and add the results by broadcasting. The same holds for
the vector of graph attention: `a @ [h_i, h_j]` for all pairs is a column, `h @ a[:n]`, plus a row, `h @ a[n:]`.

## When to leave it
Where the enlarged tensor is needed for something else as well. Sums are computed in another order: results differ in
the last digits, in bfloat16 a little more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from advisor.api import Drawing, Ev, Example, Finding, Fix, Lines, Price, Readers

from ...shared._examples import node, observed, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, rows_of, worth
from ._late_layers import Kind, late_layers

CONFIRMED = (
    "two measured pairs on a CPU: a classifier on upsampled maps, and a layer over all pairs of a scene; "
    "products with a matrix: one script that showed the need"
)

_ON_DEVICE = "in proportion to the remaining work; low: the remaining work takes twice its share"
_HOW = (
    "these ops and their backward pass in proportion to the remaining work, minus the calls of each additional layer; "
    "low: the remaining work takes twice its share"
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
        calls, layer_us = sum(one.calls for one in found) / steps, price.added.calls_us("op_calls.layer_trained")
        firsts = [row for one in sorted(found, key=lambda one: -one.layer.positions) for row in one.where]
        one = Equivalent(
            parts=tuple(part for one in found for part in one.parts),
            how=_ON_DEVICE if price.on_device else _HOW,
            instead_us=(calls * layer_us[0], calls * layer_us[1]),
            shown=rows_of(*firsts),
        )
        if known := worth(price, lines, one, min_share):
            largest = max(found, key=lambda one: one.layer.positions * one.layer.before)
            yield known.finding(
                f"{_WHAT[kind]}{known.at}, and then {_THEN[kind]} from {count(largest.layer.before)} to "
                f"{count(largest.layer.after)} channels runs on each of {count(largest.layer.positions)} positions, "
                f"{count(round(largest.growth, 1))} times as many as before: {known.spent}, backward pass included.",
                {"layers": len(found) / steps, "growth": largest.growth, "spent_us": known.spent_us},
                _FIXES[kind],
            )


_JOINED = "Tensors are expanded and joined"
_WHAT: dict[Kind, str] = {"enlarged": "Feature maps are upsampled", "joined": _JOINED, "multiplied": _JOINED}
_THEN: dict[Kind, str] = {"enlarged": "a layer", "joined": "a layer", "multiplied": "a product"}
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
    "multiplied": Fix(
        "Split the matrix, multiply each part before expanding, and add the results",
        "numerics",
        "pairs = torch.cat([h.repeat_interleave(n, dim=0), h.repeat(n, 1)], dim=1)\nscores = (pairs @ a).view(n, n)",
        "of_first, of_second = a.chunk(2)\nscores = h @ of_first + (h @ of_second).T",
    ),
}


_LAYERS, _CHAIN = "[F][U    ][A      ][L][X][Y      ][Z    ]", [[], [1], [1], [1]]
_SMALL, _LARGE, _WEIGHT = [8, 48, 16, 16], [8, 48, 64, 64], [5, 48, 1, 1]
_OF_MAPS = observed("linear upsample_bilinear2d conv2d cross_entropy_loss", _CHAIN)
_OF_PAIRS = observed("linear cat linear cross_entropy_loss", _CHAIN)


def _drawn(**ops: Any) -> Drawing:
    """A layer (F), what enlarges or joins (U), the late layer (A), a loss (L), and the nodes of the three."""
    nodes: dict[str, Any] = {
        "L": op("cross_entropy_loss", [8, 5], [8], number=3),
        "X": node(3),
        "Y": node(2),
        "Z": node(1),
    }
    return two_steps(_LAYERS, **(nodes | ops))


def _conv(shape: list[int], weight: list[int], number: int, *, padding: int = 0, last: bool = False) -> Ev:
    """A convolution. last: whether the channels of a pixel lie side by side."""
    strides = _strides([196608, 1, 3072, 48] if last else [196608, 4096, 64, 1], [48, 1, 1, 1])
    values: dict[str, Any] = {"Concrete Inputs": ["", "", "", "[1, 1]", f"[{padding}, {padding}]"]}
    return op("conv2d", shape, weight, weight[:1], number=number, **values, **strides)


def _maps(weight: list[int] = _WEIGHT, **more: Any) -> Drawing:
    return _drawn(U=op("upsample_bilinear2d", _SMALL, number=1), A=_conv(_LARGE, weight, 2, **more))


def _pairs(expanded: bool = True, width: int = 64) -> Drawing:
    each = [16, 20, 20, width]
    strides = [[400 * width, 20 * width, width, 1]] * 2
    strides = [[20 * width, width, 0, 1], [20 * width, 0, width, 1]] if expanded else strides
    layer = op("linear", [16, 20, 20, 2 * width], [64, 2 * width], [64], number=2)
    return _drawn(U=op("cat", [each, each], [], number=1, **_strides(strides, [])), A=layer)


_EACH, _ALL = [400, 8], [160000, 8]
_GRAPH = "[F][I    ][R    ][U    ][A     ][L][X][Y      ][Z    ][V    ][W    ]"
_OF_GRAPH = observed("matmul repeat_interleave repeat cat matmul leaky_relu", [[], [1], [2], [1, 2], [1], [1]])


def _graph(**made: Any) -> Drawing:
    """Features of all pairs of nodes: those of the first (I) and the second one (R), joined (U) and multiplied (A)."""
    copied: dict[str, Any] = {
        "I": op("repeat_interleave", _EACH, [], [], [], number=2),
        "R": op("repeat", _EACH, [], number=3),
    }
    return two_steps(
        _GRAPH,
        F=op("matmul", [400, 32], [32, 8], number=1),
        U=op("cat", [_ALL, _ALL], [], number=4, **_strides([[8, 1], [8, 1]], [])),
        A=op("matmul", [160000, 16], [16, 1], number=5),
        L=op("leaky_relu", [160000, 1], [], number=6),
        X=node(6, "LeakyReluBackward0"),
        Y=node(5, "MmBackward0"),
        Z=node(4, "CatBackward0"),
        V=node(3, "RepeatBackward0"),
        W=node(2, "CloneBackward0"),
        **(copied | made),
    )


_INNER = "           [b  ]"


def _heads(weight: list[int], *of_product: list[int]) -> Drawing:
    """Scores of all pairs for each of four heads, by `einsum` of the joined pairs, which multiplies matrices (b)."""
    each = [24, 4, 24, 24, 32]
    strides = [[3072, 32, 128, 0, 1], [3072, 32, 0, 128, 1]]
    ops: dict[str, Any] = {
        "U": op("cat", [each, each], [], number=1, **_strides(strides, [])),
        "A": op("einsum", [], [[24, 4, 24, 24, 64], weight], [], number=2),
        "b": op("bmm", *of_product),
        "L": op("cross_entropy_loss", [8, 5], [8], number=3),
        "X": node(3),
        "Y": node(2),
        "Z": node(1),
    }
    return two_steps(_LAYERS, _INNER, **ops)


def _strides(*of_each: Any) -> dict[str, Any]:
    return {"Input Strides": [*of_each]}


_ACTIVATED = _drawn(
    F=op("upsample_bilinear2d", _SMALL, number=0), U=op("relu", _LARGE, number=1), A=_conv(_LARGE, _WEIGHT, 2)
)
_FIRST = _drawn(U=_conv(_SMALL, _WEIGHT, 1), A=op("upsample_bilinear2d", [8, 5, 16, 16], number=2))

EXAMPLES = [
    Example(
        "classes of enlarged maps",
        _maps(),
        saves_us=(2500, 2900),
        facts=_OF_MAPS,
        says=("from 48 to 5 channels", "16 times as many"),
    ),
    Example(
        "the same with channels side by side: fewer of them may take as long",
        _maps(last=True),
        saves_us=(1500, 3000),
        facts=_OF_MAPS,
    ),
    Example(
        "all pairs of a scene",
        _pairs(),
        saves_us=(1500, 2900),
        facts=_OF_PAIRS,
        says=("are expanded and joined", "from 128 to 64 channels"),
    ),
    Example(
        "scores of graph attention from the features of all pairs of nodes",
        _graph(),
        saves_us=(4500, 5900),
        facts=_OF_GRAPH,
        says=("and then a product from 16 to 1 channels", "160,000 positions", "400 times as many"),
    ),
    Example(
        "scores of all pairs of nodes, with a vector for each head",
        _heads([4, 64], [4, 13824, 64], [4, 64, 1]),
        saves_us=(2600, 3000),
        facts=observed("linear cat einsum cross_entropy_loss", _CHAIN),
        says=("and then a product from 64 to 1 channels", "55,296 positions", "24 times as many"),
    ),
    Example(
        "a product that sums over the pairs, not over what was joined",
        _heads([4, 24], [4, 36864, 24], [4, 24, 1]),
        facts=observed("linear cat einsum cross_entropy_loss", _CHAIN),
        near_miss=True,
    ),
    Example(
        "a product with a vector for each first element, which is none of weights",
        _heads([24, 24, 64], [576, 96, 64], [576, 64, 1]),
        facts=observed("linear cat einsum cross_entropy_loss", _CHAIN),
        near_miss=True,
    ),
    Example(
        "the features of pairs were made by a layer, not said again",
        _graph(I=op("relu", _ALL, number=2), R=op("relu", _ALL, number=3)),
        facts=observed("matmul relu relu cat matmul leaky_relu", [[], [1], [2], [1, 2], [1], [1]]),
        near_miss=True,
    ),
    Example(
        "a convolution of 3 x 3 pixels mixes them", _maps([5, 48, 3, 3], padding=1), None, _OF_MAPS, near_miss=True
    ),
    Example(
        "an activation stands between",
        _ACTIVATED,
        facts=observed("upsample_bilinear2d relu conv2d cross_entropy_loss", _CHAIN),
        near_miss=True,
    ),
    Example(
        "the enlarged maps are read once more",
        _maps(),
        facts=observed("linear upsample_bilinear2d conv2d cross_entropy_loss", [[], [1], [1], [1, 2]]),
        near_miss=True,
    ),
    Example("two tensors of which none was expanded are joined", _pairs(False), None, _OF_PAIRS, near_miss=True),
    Example(
        "coordinates of all pairs: adding the results would write 64 numbers for 4",
        _pairs(width=2),
        facts=_OF_PAIRS,
        near_miss=True,
    ),
    Example(
        "the layer comes first", _FIRST, facts=observed("linear conv2d upsample_bilinear2d cross_entropy_loss", _CHAIN)
    ),
]
