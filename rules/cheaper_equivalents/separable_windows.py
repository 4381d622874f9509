"""A square window is applied whole, although it is a row times a column.

## What it looks at
Convolutions, with their backward pass, whose filter has the shape of a square window of at least eleven rows that
modules hold, is not trained, and was found to be the product of a row and a column, as Gaussian and box windows of SSIM
or a blur are. `advisor run` looks at the numbers of such windows on a CPU once.

## Why it costs time
A window of k by k numbers takes k times k multiplications for each pixel, a row and then a column 2 times k: 121
against 22 for the usual 11.

## How to fix it
Keep the row, and apply it along one axis, then along the other. The results are equal but for rounding.

## When to leave it
Windows that are trained, and small ones: of 5 and 7 rows most were faster whole. A library's own fused form of the
metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    Drawing,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    RankRecord,
    constant,
    dims_of,
    sizes,
    with_backward,
)

from ..shared._examples import node, op, two_steps
from ..shared._places import set_at
from ..shared._words import often
from ._equivalent import Equivalent, worth

_NAMES = ("aten::conv2d", "aten::convolution")
_SAVED = constant("share.separable_window").range
_HOW = "the share of these convolutions' time, backward pass included, that a row and a column saved on a CPU"
_FIX = Fix(
    "Apply the window as a row and then as a column",
    "numerics",
    "x = F.conv2d(x, window, groups=channels)  # k x k",
    "x = F.conv2d(x, row.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)\n"
    "x = F.conv2d(x, row.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)",
)


def check(
    price: Price,
    record: RankRecord | None,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a line more; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events = price.ops.events
    windows = {tuple(one["shape"]): one["name"] for one in ((record and record.model) or {}).get("separable", [])}
    rows = price.ops.outermost_named(*_NAMES)
    used = [(row, shape) for row in rows.tolist() if (shape := sizes(dims_of(events, row), 1)) in windows]
    if not used:
        return
    rows = np.array([row for row, _ in used], np.int64)
    size = min(shape[-1] for _, shape in used)
    one = Equivalent(
        parts=((with_backward(events, rows), *_SAVED),),
        how=_HOW,
        shown=rows,
        timed_on_device=False,
    )
    if known := worth(price, lines, one, min_share):
        made = set_at(record.settings if record else None, "window")
        finding = known.finding(
            f"The {size} x {size} window `{windows[used[0][1]]}` is applied as a whole{known.at}, "
            f"{often(len(rows) / price.ops.steps.count)}, although it is a row times a column: {known.spent}, backward "
            "pass included.",
            {"size": size, "times": len(rows) / price.ops.steps.count, "spent_us": known.spent_us},
            _FIX,
        )
        yield replace(finding, where=(*made, *finding.where))


_IMAGE, _WINDOW = [8, 3, 96, 96], [3, 1, 11, 11]


def _drawn(window: list[int]) -> Drawing:
    """A layer (F), the window on an image (W), the loss (L) and their nodes."""
    ops: dict[str, Any] = {"W": op("conv2d", _IMAGE, window, number=1), "X": node(1, "ConvolutionBackward0")}
    return two_steps("[F   ][W     ][X       ][B   ][O ]", **ops)


def _facts(*shapes: list[int]) -> dict[str, Any]:
    return {"model": {"separable": [{"name": "SSIM.window", "shape": shape} for shape in shapes]}}


EXAMPLES = [
    Example(
        "a Gaussian window of 11 rows",
        _drawn(_WINDOW),
        saves_us=(0, 1700),
        facts=_facts(_WINDOW),
        says=("The 11 x 11 window `SSIM.window` is applied as a whole", "once a step"),
    ),
    Example("a filter that is no product", _drawn(_WINDOW), facts=_facts(), near_miss=True),
    Example("a layer of another shape", _drawn([24, 1, 3, 3]), facts=_facts(_WINDOW)),
    Example("nobody looked", _drawn(_WINDOW), facts={}),
]
