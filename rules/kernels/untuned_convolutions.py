"""cudnn.benchmark is off, although all convolutions have fixed shapes.

## What it looks at
Time in convolutions on an NVIDIA device, whether their shapes are the same in every step, and whether
`torch.backends.cudnn.benchmark` was off, as capture recorded it.

## Why it costs time
cuDNN has several algorithms for each convolution. By default PyTorch takes the one that a heuristic suggests. With
`benchmark`, cuDNN times them once for each new shape and keeps the fastest.

## How to fix it
`torch.backends.cudnn.benchmark = True` at the start. The first step with each shape takes longer.

## When to leave it
Shapes that change: each new one is timed again. Runs that must be bitwise reproducible: another run may pick another
algorithm. Models for which torch.compile generates its own kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    Category,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Ints,
    Missing,
    Scale,
    Settings,
    StepOps,
    Treatment,
    draw,
    duration,
)

from ..shared._places import set_at
from ..shared._words import count, percent, plural
from ._unfolded import unfolded

_CONVOLUTIONS = ("aten::cudnn_convolution", "aten::convolution_backward", "aten::convolution")


def check(
    recorded: StepOps,
    scale: Scale,
    busy: GpuBusy,
    device: Device,
    settings: Settings,
    *,
    min_share: float = 0.2,  # of the device's work: benchmarking saves only a part of it, often a small one
) -> Iterator[Finding]:
    if settings.cudnn_benchmark is None:
        raise Missing("whether cudnn.benchmark was on was not recorded")
    if settings.cudnn_benchmark or settings.deterministic or settings.compiled or device.kind != "cuda":
        return
    events, steps, links = recorded.events, recorded.steps, recorded.links
    rows = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly(*_CONVOLUTIONS) & links.inside)
    if (without := unfolded(recorded)) is not None:
        rows = np.setdiff1d(rows, without.calls)  # cuDNN has no part in them
    if not len(rows) or steps.count < 2 or not _same_in_each_step(recorded, rows):
        return
    spent_us = recorded.device_us(rows)
    share = spent_us / busy.us if busy.us else 0.0
    if share < min_share:
        return
    shapes = len(np.unique(events.dims[rows]))
    yield Finding(
        message=(
            f"Convolutions of {plural(shapes, 'shape')}, identical in each of {count(steps.count)} steps, take "
            f"{duration(scale.scaled(spent_us))} of each step ({percent(share)} of the device's work), and "
            "cudnn.benchmark is off."
        ),
        # Which algorithm is fastest only the device itself tells.
        saving=None,
        where=set_at(settings, "cudnn_benchmark"),
        facts={"convolution_us": spent_us, "shapes": shapes},
        fix=Fix(
            "Set `cudnn.benchmark = True`, and measure the step before and after",
            "numerics",
            "import torch",
            "import torch\n\ntorch.backends.cudnn.benchmark = True",
            Treatment("cudnn", {"benchmark": True}),
        ),
        claims=("compute",),
        at_most="low",
    )


def _same_in_each_step(recorded: StepOps, rows: Ints) -> bool:
    """Whether every step has the same shapes; unknown shapes are not the same."""
    dims = recorded.events.dims[rows]
    if (dims < 0).any():
        return False
    each = [frozenset(dims[recorded.links.step[rows] == step].tolist()) for step in range(recorded.steps.count)]
    return len(set(each)) == 1


def _convolution(samples: int) -> Ev:
    return Ev("aten::cudnn_convolution", dims=[[samples, 64, 56, 56], [64, 64, 3, 3]])


_KERNEL = Ev("cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4", "kernel")
_STEPS = """
    step   [1                ][2                ]
    cpu    [C  ][F  ]          [D  ][F  ]
    gpu 7   [K        ][L ]     [K        ][L ]
    """
_OFF = {"settings": {"cudnn_benchmark": False, "deterministic": False, "compiled": False}}

EXAMPLES = [
    Example(
        "fixed sizes, and nothing tried out",
        draw(_STEPS, us=100, C=_convolution(32), D=_convolution(32), K=_KERNEL, L=_KERNEL),
        facts=_OFF,
        saves_us="unknown",
        says=("cudnn.benchmark is off",),
    ),
    Example(
        "sizes that change",
        draw(_STEPS, us=100, C=_convolution(32), D=_convolution(31), K=_KERNEL, L=_KERNEL),
        facts=_OFF,
        near_miss=True,
    ),
    Example(
        "deterministic algorithms were asked for",
        draw(_STEPS, us=100, C=_convolution(32), D=_convolution(32), K=_KERNEL, L=_KERNEL),
        facts={"settings": {"cudnn_benchmark": False, "deterministic": True}},
        near_miss=True,
    ),
    Example(
        "tried out",
        draw(_STEPS, us=100, C=_convolution(32), D=_convolution(32), K=_KERNEL, L=_KERNEL),
        facts={"settings": {"cudnn_benchmark": True}},
    ),
]
