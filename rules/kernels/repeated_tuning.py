"""cuDNN benchmarks convolutions repeatedly because shapes change.

## What it looks at
Convolutions on an NVIDIA device with `torch.backends.cudnn.benchmark` on, as capture recorded it, whose shapes differ
from step to step: calls that launch four times as many kernels as most convolutions do.

## Why it costs time
With `benchmark`, cuDNN times its algorithms for each shape that it has not seen, and keeps the fastest. Shapes that
change with each batch are new each time: every convolution runs once per algorithm, in workspaces that are allocated
and freed.

## How to fix it
`torch.backends.cudnn.benchmark = False`, or batches of a few sizes: padded to the next of them, or sorted into buckets.

## When to leave it
The first steps, and a small number of shapes, all of which will soon have been seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from advisor.api import (
    SYNC,
    Category,
    Device,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Links,
    Missing,
    Nesting,
    Price,
    Settings,
    Trace,
    Treatment,
    draw,
    edits,
)

from ..shared._places import set_at
from ..shared._words import count, each_step, plural

Ints = npt.NDArray[np.int64]
_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
# A convolution is one to three kernels with its transposes; cuDNN has seven algorithms and more to try.
_TRIES = 4


def check(
    price: Price,
    device: Device,
    settings: Settings,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # of the step: one setting, but it slows down shapes that do recur
) -> Iterator[Finding]:
    if settings.cudnn_benchmark is None:
        raise Missing("whether cudnn.benchmark was on was not recorded")
    if not settings.cudnn_benchmark or device.kind != "cuda":
        return
    recorded = price.ops
    found = _tried_anew(recorded.trace, recorded.nesting, recorded.links)
    if found is None:
        return
    events = recorded.events
    tried, mine, usual = found
    factor = usual * len(tried) / len(mine)
    spent_us = recorded.us(mine)
    how = "high: the kernels beyond the usual number, if all of a call take equally long; low: half of that"
    half, all_of_it = [edits.scale(mine, (1 + factor) / 2)], [edits.scale(mine, factor)]
    saving = price.saving(half, all_of_it, ("compute",), how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    where = lines.where_op(int(tried[0])) if lines else None
    yield Finding(
        message=(
            "cudnn.benchmark is on, and times algorithms for new shapes of "
            f"{plural(len(tried) / price.ops.steps.count, 'convolution')} a step, with "
            f"{plural(round(len(mine) / len(tried)), 'kernel')} instead of {count(usual)}: "
            f"{each_step(price, spent_us)}."
        ),
        saving=saving,
        where=set_at(settings, "cudnn_benchmark") + ((where,) if where else ()),
        facts={
            "tuning_runs": len(tried) / price.ops.steps.count,
            "shapes": len(np.unique(events.dims[tried])),
            "tuning_us": spent_us,
        },
        fix=Fix(
            "Set `cudnn.benchmark = False` if shapes keep changing",
            "numerics",
            "torch.backends.cudnn.benchmark = True",
            "torch.backends.cudnn.benchmark = False",
            Treatment("cudnn", {"benchmark": False}),
        ),
        claims=("compute",),
    )


def _tried_anew(trace: Trace, nesting: Nesting, links: Links) -> tuple[Ints, Ints, float] | None:
    """Convolutions that run many kernels, those kernels, and how many a call usually runs; None where none do."""
    events = trace.events
    calls = events.exactly(*_CONVOLUTIONS) & links.inside & (events.dims >= 0)
    if not calls.any():
        return None
    work = np.flatnonzero(events.of(Category.KERNEL) & (links.launch >= 0) & links.inside)
    owner = nesting.ancestor(calls)[links.launch[work]]
    work, owner = work[owner >= 0], owner[owner >= 0]
    rows, kernels = np.unique(owner, return_counts=True)
    if not len(rows):
        return None
    usual = float(np.median(kernels))
    tried = rows[kernels >= _TRIES * usual]
    if len(np.unique(events.dims[tried])) < 2:
        return None  # one shape is tried once, in the first step that has it
    return tried, work[np.isin(owner, tried)], usual


def _convolution(side: int) -> Ev:
    return Ev("aten::convolution", dims=[[8, 64, side, side], [64, 64, 3, 3]], launches="")


_TRY, _ONE = Ev("aten::cudnn_convolution", times=6), Ev("aten::cudnn_convolution")
_STEPS = """
    step   [1                     ][2                     ]
    cpu    [A   ][B][B][S        ] [C   ][B][B][S        ]
    cpu    [T   ][O][O]            [U   ][O][O]
    gpu 7   [K              ][L][L] [K              ][L][L]
    """
_KERNEL = "cudnn_infer_ampere_scudnn_winograd_128x128"


def _drawn(first: Ev, second: Ev, tries: Ev) -> Drawing:
    many = Ev(_KERNEL, "kernel", times=tries.times)
    usual = {"B": _convolution(14), "O": _ONE, "L": Ev(_KERNEL, "kernel"), "S": SYNC}
    given: dict[str, Ev] = {"A": first, "C": second, "T": tries, "U": tries, "K": many, **usual}
    return draw(_STEPS, us=100, device="A100", **given)  # type: ignore[arg-type]


_ON = {"settings": {"cudnn_benchmark": True}}

EXAMPLES = [
    Example(
        "pictures of another size in each step",
        _drawn(_convolution(57), _convolution(61), _TRY),
        facts=_ON,
        saves_us=(500, 1500),
        says=("6 kernels instead of 1",),
    ),
    Example(
        "pictures of other sizes, whose shapes have been seen",
        _drawn(_convolution(57), _convolution(61), _ONE),
        facts=_ON,
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "the switch is off",
        _drawn(_convolution(57), _convolution(61), _TRY),
        facts={"settings": {"cudnn_benchmark": False}},
        saves_us=None,
        near_miss=True,
    ),
    Example("one size", _drawn(_convolution(57), _convolution(57), _TRY), facts=_ON, saves_us=None),
]
