"""Every kernel launch waits until its kernel has finished.

## What it looks at
Launch calls that return only after the kernel that they started has ended. Without `CUDA_LAUNCH_BLOCKING=1` (or
`HIP_LAUNCH_BLOCKING=1`, `AMD_SERIALIZE_KERNEL`) a launch returns in some microseconds and the kernel runs later.

## Why it costs time
The variable exists for finding errors: it makes the line that fails the line that is reported. While it is set the
host cannot run ahead, so the device idles from the end of each kernel until the next one is launched, and nothing
runs side by side.

## How to fix it
Remove the variable from the environment, the job script and the container. Look for `os.environ` in the script too.

## When to leave it
While an error in a kernel is being looked for; a training that is stuck at such an error is no faster without.
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
    Steps,
    Trace,
    draw,
)

from ..shared._words import percent, time

# Fewer kernels say too little: a short kernel may end before its launch returns.
_KERNELS = 20


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    links: Links,
    *,
    min_blocking: float = 0.9,  # the variable concerns every launch; without it hardly one outlasts its kernel
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
            f"{percent(share)} of the launches return only after their kernel has ended, as CUDA_LAUNCH_BLOCKING=1 "
            f"makes them: the host spends {time(in_calls_us)} of each profiled step in launches, and nothing overlaps."
        ),
        # What the host could do meanwhile, and what would then overlap, only a run without the variable tells.
        saving=None,
        facts={"blocking_share": share, "launch_us": in_calls_us},
        fix=Fix("Unset the variable", "exact", "CUDA_LAUNCH_BLOCKING=1 python train.py", "python train.py"),
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
