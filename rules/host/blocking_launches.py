"""Kernel launches are synchronous (CUDA_LAUNCH_BLOCKING).

## What it looks at
Launch calls that return only after the kernel that they started has finished. Without `CUDA_LAUNCH_BLOCKING=1` (or
`HIP_LAUNCH_BLOCKING=1`, `AMD_SERIALIZE_KERNEL`) a launch returns within microseconds, and the kernel runs later.

## Why it costs time
The variable is meant for debugging: it makes an error appear at the line that caused it. While it is set, the host
cannot run ahead, so the device is idle from the end of each kernel until the next launch, and no two kernels or copies
overlap.

## How to fix it
Remove the variable from the environment, the job script and the container. Look for `os.environ` in the script too.

## When to leave it
While an error in a kernel is being debugged: asynchronous launches would report it at the wrong line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    FORWARD,
    GEMM,
    Breakdown,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Launches,
    Scale,
    Settings,
    draw,
    duration,
)

from ..shared._places import set_at
from ..shared._words import percent
from ._launches_in_ops import BLOCKING


def check(
    launches: Launches,
    breakdown: Breakdown,
    scale: Scale,
    settings: Settings | None,
    *,
    min_blocking: float = BLOCKING,  # the variable affects every launch, and hardly any waits without it
) -> Iterator[Finding]:
    share = launches.blocking_share
    if share is None or share < min_blocking:
        return
    idle_us = breakdown.us("idle_launch")
    yield Finding(
        message=(
            f"{percent(share)} of the kernel launches return only after their kernel has finished, as with "
            f"CUDA_LAUNCH_BLOCKING=1: the host spends {duration(launches.blocked_us)} of each profiled step in "
            f"launches, and nothing overlaps."
        ),
        saving=scale.saving(0.0, idle_us, "high: the host is always ahead; low: it waits elsewhere instead")
        if idle_us
        else None,
        where=set_at(settings, "CUDA_LAUNCH_BLOCKING"),
        facts={"blocking_share": share, "launch_us": launches.blocked_us},
        fix=Fix("Unset `CUDA_LAUNCH_BLOCKING`", "exact", "CUDA_LAUNCH_BLOCKING=1 python train.py", "python train.py"),
        claims=("idle_launch",) if idle_us else (),
        at_most="medium",
    )


def _launches(call_us: float, kernel_us: float) -> Drawing:
    """A trace of forty launches, each with its kernel right after its start; drawn when it is looked at, as all are."""
    return Drawing(lambda: _drawn(call_us, kernel_us))


def _drawn(call_us: float, kernel_us: float) -> dict[str, Any]:
    made = draw(
        """
        step   [1                                        ][2                                        ]
        cpu    [F                   ]                      [F                   ]
        gpu 7   [K                   ]                      [K                   ]
        """,
        us=100,
        F=Ev(FORWARD.name, times=20),
        K=Ev(GEMM.name, "kernel", times=20, fill=kernel_us / 105),
    )
    for row in made["traceEvents"]:
        if row["name"] == "cudaLaunchKernel":
            row["dur"] = call_us
    return dict(made)


EXAMPLES = [
    Example(
        "each launch returns after its kernel",
        _launches(104.5, 3.0),
        saves_us=(0, 2_200),
        says=("CUDA_LAUNCH_BLOCKING",),
    ),
    Example("short kernels, and launches that return at once", _launches(5.0, 3.0), near_miss=True),
    Example("launches that return at once", _launches(5.0, 90.0)),
]
