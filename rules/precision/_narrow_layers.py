"""Conversions of activations to fp32 and back around narrow layers in fp32, beside layers in 16 bits.

Adapters (LoRA and others) multiply by a narrow weight and then by one that is as wide as before. Where these weights
are in fp32 and the model is not, each call converts the activation, which is far larger than both weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import (
    AUTOGRAD_NODE,
    Category,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    dims_of,
    draw,
    dtypes_of,
    duration,
    edits,
    sizes,
)

from ..shared._places import first_line, place
from ..shared._words import often, percent

Shape = tuple[int, ...]

_SHORT = {"c10::Half": "fp16", "c10::BFloat16": "bf16"}
# Of a pair of weights the first has at most so many rows per column: more is no adapter, but a layer of the model.
_NARROW = 1 / 4
_NODE = f"{AUTOGRAD_NODE}: ToCopyBackward0"

FIX = Fix(
    "Convert the narrow weights instead of the activation: call these layers under autocast",
    "numerics",
    "y = base(x) + up(down(x.float()))  # down, up: in fp32",
    'with torch.autocast("cuda", dtype=x.dtype):\n    y = base(x) + up(down(x))  # the weights stay in fp32',
)


class Narrow(Struct, frozen=True):
    """casts: the conversions (`aten::_to_copy`);  layers: the products between them;  short: format of the model."""

    casts: Ints
    layers: Ints
    short: str


def around_narrow_layers(price: Price, lines: Lines | None, min_share: float) -> Iterator[Finding]:
    """What the conversions cost, with those of the gradients; none where a router or a loss is in fp32 on purpose."""
    found = _found(price)
    if found is None:
        return
    events, steps, scale = price.ops.events, price.ops.steps, price.scale
    nodes = np.flatnonzero(events.exactly(_NODE) & (events.sequence >= 0))
    nodes = nodes[np.isin(events.sequence[nodes], events.sequence[found.casts])]
    rows = np.concatenate((found.casts, nodes))
    spent_us = price.spent_us(rows)
    if spent_us < min_share * steps.step_us:
        return
    gone = edits.remove(rows)
    # They read and write as many numbers, each of half the bytes.
    half = edits.scale(price.ops.launched(found.layers), 0.5)
    how = "low: without these conversions; high: and narrow products in half the time, as they read half the bytes"
    saving = price.saving([gone], [gone, half], ("compute",), how)
    if saving.high_us < min_share * scale.step_us:
        return
    where = first_line(lines, found.casts)
    yield Finding(
        message=(
            f"Activations in {found.short} are converted to fp32 and back for narrow layers in fp32 "
            f"{often(len(found.casts) / steps.count)}{place(where)}: {duration(scale.scaled(spent_us))} of the "
            f"device's work in each step ({percent(spent_us / steps.step_us)})."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"conversions": len(found.casts) / steps.count, "conversion_us": spent_us, "format": found.short},
        fix=FIX,
        claims=("compute",),
        at_most="medium",  # whether fp32 is asked for on purpose no trace tells
    )


def _found(price: Price) -> Narrow | None:
    """The conversions of all steps that precede a pair of narrow layers in fp32 or follow it."""
    events, nesting, steps = price.ops.events, price.ops.nesting, price.ops.steps
    mine = events.of(Category.CPU_OP) & (events.thread == steps.main_thread) & price.ops.links.inside
    linear = np.flatnonzero(events.exactly("aten::linear") & mine)
    copies = np.flatnonzero(events.exactly("aten::copy_") & mine)
    outer = nesting.ancestor_of(copies, events.exactly("aten::_to_copy"))
    copies, outer = copies[outer >= 0], outer[outer >= 0]
    called = events.start_ns[linear]
    casts: list[int] = []
    layers: list[int] = []
    formats: list[str] = []
    for up, row in enumerate(copies.tolist()):
        kinds = _kinds(events, row)
        short = _SHORT.get(kinds[1]) if kinds[:1] == ["float"] and len(kinds) > 1 else None
        if short is None:
            continue
        at = int(np.searchsorted(called, events.end_ns[outer[up]]))
        shape, pair = sizes(dims_of(events, row), 0), linear[at : at + 2].tolist()
        wide = _widened(events, pair, shape) if len(pair) == 2 else None
        if wide is None:
            continue
        ends = int(called[at + 2]) if at + 2 < len(called) else int(steps.window[-1, 1])
        after = slice(*np.searchsorted(events.start_ns[copies], (events.end_ns[pair[1]], ends)).tolist())
        back = (
            cast
            for cast, copy in zip(outer[after].tolist(), copies[after].tolist(), strict=True)
            if _kinds(events, copy)[1:2] == ["float"] and sizes(dims_of(events, copy), 0) == wide
        )
        casts += [int(outer[up]), *islice(back, 1)]
        layers += pair
        formats.append(short)
    if not casts:
        return None
    return Narrow(np.unique(casts), np.unique(layers), max(formats, key=formats.count))


def _kinds(events: Events, row: int) -> list[str]:
    """Formats of the destination and the source of a copy."""
    return dtypes_of(events, row)[:2]


def _widened(events: Events, pair: list[int], shape: Shape) -> Shape | None:
    """The result's shape where two layers in fp32 take a tensor of this shape through a narrow one; else None."""
    for row in pair:
        if dtypes_of(events, row)[:2] != ["float", "float"]:
            return None
    (down, narrow), (up, wide) = ((sizes(dims_of(events, row), 0), sizes(dims_of(events, row), 1)) for row in pair)
    if down != shape or len(shape) < 2 or len(narrow) != 2 or len(wide) != 2:
        return None
    rank = narrow[0]
    if up != (*shape[:-1], rank) or rank > _NARROW * min(shape[-1], wide[0]):
        return None
    return (*shape[:-1], wide[0])


_X, _BF16 = [4096, 1024], "c10::BFloat16"
_LANES = """
    step   [1                                               ][2                                               ]
    cpu    [T         ][D      ][U      ][R        ]         [T         ][D      ][U      ][R        ]
    cpu     [C       ]                    [S      ]           [C       ]                    [S      ]
    cpu      [O    ]                       [V   ]              [O    ]                       [V   ]
    gpu 7     [E       ][K          ][K          ][E      ]     [E       ][K          ][K          ][E      ]
    """


def _linear(shape: list[int], weight: list[int], kind: str = "float") -> Ev:
    return Ev("aten::linear", dims=[shape, weight, []], dtypes=[kind, kind, ""], launches="kernel")


def _drawn(**other: Ev) -> Drawing:
    words: dict[str, Any] = {
        "T": Ev("aten::to", launches=""),
        "C": Ev("aten::_to_copy", dims=[_X, []], launches=""),
        "O": Ev("aten::copy_", dims=[_X, _X, []], dtypes=["float", _BF16, "Scalar"], launches="kernel"),
        "D": _linear(_X, [16, 1024]),
        "U": _linear([4096, 16], [1024, 16]),
        "R": Ev("aten::to", launches=""),
        "S": Ev("aten::_to_copy", dims=[_X, []], launches=""),
        "V": Ev("aten::copy_", dims=[_X, _X, []], dtypes=[_BF16, "float", "Scalar"], launches="kernel"),
    }
    return draw(_LANES, us=100, **(words | other))


NARROW = [
    Example(
        "an adapter in fp32 in a model in bf16: the activation is converted to fp32, and the result back",
        _drawn(),
        saves_us=(1000, 3400),
        says=("Activations in bf16 are converted to fp32 and back", "2 times a step"),
        fixes=("torch.autocast",),
    ),
    Example(
        "a router in fp32, whose layer is the only narrow one",
        _drawn(U=_linear(_X, [1024, 1024], _BF16)),
        near_miss=True,
    ),
    Example(
        "layers in fp32 that are as wide as the model's",
        _drawn(D=_linear(_X, [1024, 1024]), U=_linear(_X, [1024, 1024])),
        near_miss=True,
    ),
]
