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

import numpy as np

from advisor.api import (
    FORWARD,
    GEMM,
    Breakdown,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Links,
    RankRecord,
    Steps,
    Trace,
    draw,
    duration,
)

from ..shared._places import set_at
from ..shared._words import percent

# Fewer kernels say too little: a short kernel may end before its launch returns.
_KERNELS = 20


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    links: Links,
    record: RankRecord | None,
    *,
    min_blocking: float = 0.9,  # the variable affects every launch; without it, hardly any launch outlasts its kernel
) -> Iterator[Finding]:
    events = trace.events
    kernels = np.flatnonzero(events.of(Category.KERNEL) & (links.launch >= 0) & links.inside)
    if len(kernels) < _KERNELS:
        return
    calls = links.launch[kernels]
    # A launch that starts many kernels, as that of a CUDA graph does, outlasts the first of them anyway.
    single = np.bincount(calls, minlength=len(events))[calls] == 1
    kernels, calls = kernels[single], calls[single]
    outlasts = events.end_ns[calls] >= events.end_ns[kernels]
    longer = events.dur_ns[calls] >= events.dur_ns[kernels]
    share = float((outlasts & longer).mean()) if len(kernels) else 0.0
    if len(kernels) < _KERNELS or share < min_blocking:
        return
    in_calls_us = steps.per_step_us(float(events.dur_ns[calls].sum()))
    yield Finding(
        message=(
            f"{percent(share)} of the kernel launches return only after their kernel has finished, as with "
            f"CUDA_LAUNCH_BLOCKING=1: the host spends {duration(in_calls_us)} of each profiled step in launches, and "
            f"nothing overlaps."
        ),
        # What the host could do meanwhile, and what would then overlap, only a run without the variable tells.
        saving=None,
        where=set_at(record.settings if record else None, "CUDA_LAUNCH_BLOCKING"),
        facts={"blocking_share": share, "launch_us": in_calls_us},
        fix=Fix("Unset `CUDA_LAUNCH_BLOCKING`", "exact", "CUDA_LAUNCH_BLOCKING=1 python train.py", "python train.py"),
        claims=("idle_launch",) if breakdown.us("idle_launch") else (),
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
        saves_us="unknown",
        says=("CUDA_LAUNCH_BLOCKING",),
    ),
    Example("short kernels, and launches that return at once", _launches(5.0, 3.0), saves_us=None, near_miss=True),
    Example("launches that return at once", _launches(5.0, 90.0), saves_us=None),
]
