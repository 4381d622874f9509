"""A norm is written out in elementwise ops.

## What it looks at
A mean over the last dimension, the difference from it, and its quotient by a deviation, as LayerNorm is written:
`(x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + eps) * weight + bias`, in one run of ops with
no other op between. Likewise means over a batch of images for each channel, as BatchNorm is. Their part of the backward
pass belongs to them. Needs recorded shapes.

## Why it costs time
Six to nine ops read whole tensors from memory, most write one, and the backward pass does so again for each, where one
kernel reads the input twice. Each also keeps a tensor for the backward pass.

## How to fix it
`nn.LayerNorm(d)`, or `F.layer_norm(x, (d,), weight, bias)`; `nn.BatchNorm2d(c)`. With the backward pass they took 9 to
38 %, and 22 to 51 %, of the time of what is written out (a CPU, 24 and 15 sizes and forms).

## When to leave it
Where the deviation is another one on purpose: `x.std(-1)` divides by one less, and adding eps to it, not to its square,
weighs small values differently. RMSNorm is not reported: `F.rms_norm` took as long on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

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
    StepOps,
    constant,
    dims_of,
    sizes,
    with_backward,
)

from ..shared._examples import node, op, two_steps
from ..shared._words import often
from ._equivalent import Equivalent, worth

Shape = tuple[int, ...]
Kind = Literal["layer", "batch"]
_LEFT: dict[Kind, tuple[float, float]] = {
    "layer": constant("share.written_out_layer_norm").range,
    "batch": constant("share.written_out_batch_norm").range,
}
_MEANS = ("aten::mean", "aten::var_mean", "aten::std_mean")
_DEVIATIONS = ("aten::var", "aten::std", "aten::pow", "aten::square", "aten::var_mean", "aten::std_mean")
_QUOTIENTS = ("aten::div", "aten::mul")
# What else it is written with: on the whole tensor with the mean, the deviation, a weight or a bias, or on these alone.
_OTHERS = ("aten::sub", "aten::add", "aten::add_", "aten::mul_", "aten::sqrt", "aten::rsqrt", "aten::reciprocal")
_OPS = frozenset((*_MEANS, *_DEVIATIONS, *_QUOTIENTS, *_OTHERS))
# No way to write it takes more on either side of the difference.
_REACH = 10
_HOW = "what torch's own norm left of these ops' time, backward pass included, in measurements on a CPU"
_WORDS: dict[Kind, str] = {"layer": "LayerNorm", "batch": "BatchNorm"}


class _Norm(Struct, frozen=True):
    kind: Kind
    rows: tuple[int, ...]


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # one module; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    found = list(_written_out(price.ops))
    events = price.ops.events
    for kind, left in _LEFT.items():
        mine = [one for one in found if one.kind == kind]
        if not mine:
            continue
        rows = np.array(sorted({row for one in mine for row in one.rows}), np.int64)
        one = Equivalent(
            parts=((with_backward(events, rows), 1 - left[1], 1 - left[0]),),
            how=_HOW,
            shown=rows,
            timed_on_device=False,
        )
        if known := worth(price, lines, one, min_share):
            calls, each = len(mine) / price.ops.steps.count, len(rows) / len(mine)
            yield known.finding(
                f"{_WORDS[kind]} is computed in {each:.0f} ops{known.at}, {often(calls)}: {known.spent}, backward pass "
                "included.",
                {"calls": calls, "ops": each, "norm_us": known.spent_us},
                _FIXES[kind],
            )


def _written_out(ops: StepOps) -> Iterator[_Norm]:
    """The norms that are written out, by their ops."""
    rows, events, behind = ops.outermost, ops.events, -1
    for at in np.flatnonzero(events.exactly("aten::sub")[rows]).tolist():
        dims = dims_of(events, int(rows[at]))
        whole, mean = sizes(dims, 0), sizes(dims, 1)
        kind = _kind(whole, mean)
        if kind is None or at <= behind:
            continue
        weights = mean if kind == "batch" else whole[-1:]
        first, last = at, at
        while first > max(at - _REACH, behind + 1) and _belongs(events, int(rows[first - 1]), whole, mean, weights):
            first -= 1
        while last < min(at + _REACH, len(rows) - 1) and _belongs(events, int(rows[last + 1]), whole, mean, weights):
            last += 1
        mine = rows[first : last + 1]
        if _is_norm(events, mine, whole, mean):
            behind = last
            yield _Norm(kind, tuple(mine.tolist()))


def _kind(whole: Shape, mean: Shape) -> Kind | None:
    if len(whole) > 1 and whole[-1] > 1 and mean == (*whole[:-1], 1):
        return "layer"
    return "batch" if len(whole) == 4 and mean == (1, whole[1], 1, 1) else None


def _belongs(events: Events, row: int, whole: Shape, mean: Shape, weights: Shape) -> bool:
    """Whether this op takes what a norm of that shape has, and no second tensor of the whole shape."""
    if events.text(row) not in _OPS:
        return False
    dims = dims_of(events, row)
    given = [size for at in range(min(len(dims), 2)) if (size := sizes(dims, at))]
    alone = len(given) == 1 and events.text(row) not in ("aten::add", "aten::mul", "aten::sub", "aten::div")
    return set(given) <= {whole, mean, weights} and (
        (given.count(whole) == 1 and (alone or len(given) == 2)) or given.count(mean) == len(given) > 0
    )


def _is_norm(events: Events, rows: Ints, whole: Shape, mean: Shape) -> bool:
    """A mean and a deviation of the whole tensor, and its quotient by one."""
    read = {events.text(row) for row in rows.tolist() if sizes(dims_of(events, row), 0) == whole}
    divided = any(
        events.text(row) in _QUOTIENTS
        and {sizes(dims_of(events, row), 0), sizes(dims_of(events, row), 1)} == {whole, mean}
        for row in rows.tolist()
    )
    return bool(read & set(_MEANS)) and bool(read & set(_DEVIATIONS)) and divided


_FIXES: dict[Kind, Fix] = {
    "layer": Fix(
        "Use `nn.LayerNorm`",
        "numerics",
        "mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)\n"
        "x = (x - mean) / torch.sqrt(var + eps) * weight + bias",
        "x = F.layer_norm(x, x.shape[-1:], weight, bias, eps)",
    ),
    "batch": Fix(
        "Use `nn.BatchNorm2d`",
        "numerics",
        "mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)\n"
        "x = (x - mean) / torch.sqrt(var + eps) * weight + bias",
        "x = norm(x)  # nn.BatchNorm2d(channels)",
    ),
}
_X, _M, _W = [32, 64, 128], [32, 64, 1], [128]
_MAPS, _CHANNELS = [16, 32, 48, 48], [1, 32, 1, 1]


def _drawn(x: list[int] = _X, m: list[int] = _M, w: list[int] = _W, **changed: Any) -> Drawing:
    """A layer (F), the mean (A), the deviation (V, E, Q), the difference (S), quotient (D), weight (W), bias (B)."""
    ops: dict[str, Any] = {
        "F": op("linear", [2048, 128], [128, 128], [128], number=1),
        "A": op("mean", x, number=2),
        "V": op("var", x, number=3),
        "S": op("sub", x, m, number=4),
        "E": op("add", m, []),
        "Q": op("sqrt", m, number=5),
        "D": op("div", x, m, number=6),
        "W": op("mul", x, w, number=7),
        "B": op("add", x, w, number=8),
        "G": node(8),
        "H": node(7),
        "I": node(6),
        "J": node(4),
        "K": node(3),
        "L": node(1),
    }
    return two_steps("[F][A  ][V  ][S  ][E][Q][D  ][W  ][B  ][G  ][H  ][I  ][J  ][K  ][L]", **(ops | changed))


EXAMPLES = [
    Example(
        "LayerNorm of a transformer, as tutorials write it",
        _drawn(),
        saves_us=(3000, 6000),
        says=("LayerNorm is computed in 8 ops", "once a step"),
        fixes=("nn.LayerNorm",),
    ),
    Example(
        "BatchNorm of maps, written out",
        _drawn(_MAPS, _CHANNELS, _CHANNELS),
        saves_us=(2500, 5500),
        says=("BatchNorm is computed in 8 ops",),
        fixes=("nn.BatchNorm2d",),
    ),
    Example("a softmax: the largest is taken off, not the mean", _drawn(A=op("amax", _X, number=2)), near_miss=True),
    Example("RMSNorm has no mean", _drawn(A=op("pow", _X, number=2), S=op("mul", _X, _M, number=4)), near_miss=True),
    Example(
        "the mean of a batch is taken off, and nothing divided",
        _drawn(D=op("relu", _X, number=6)),
        near_miss=True,
    ),
    Example(
        "torch's own",
        two_steps("[F      ][N     ][L    ]", N=op("layer_norm", _X, [], _W, _W, number=2), L=node(2)),
    ),
]
