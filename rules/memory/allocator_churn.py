"""Device memory is allocated and freed by the driver within the steps.

## What it looks at
Calls of `cudaMalloc`, `cudaFree` and similar functions inside the profiled steps, after the warm-up. PyTorch's caching
allocator keeps freed memory for the next tensor, so a training in steady state makes no such calls.

## Why it costs time
Each call goes to the driver, and `cudaFree` waits until the device has finished all its work: the queue runs empty.
Causes are `torch.cuda.empty_cache()` in the loop, shapes that change from step to step, or a device so full that
PyTorch has to free cached memory before it can allocate more.

## How to fix it
Remove `empty_cache()`. For changing shapes set `PYTORCH_ALLOC_CONF=expandable_segments:True` in the
environment (`PYTORCH_CUDA_ALLOC_CONF` before PyTorch 2.9), or pad to a few shapes. For a full device lower the peak:
a smaller batch, activation checkpointing.

## When to leave it
Steps in which a new shape occurs for the first time, and two processes that alternate on one device.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    FORWARD,
    GEMM,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Lines,
    Price,
    Scale,
    Steps,
    Trace,
    draw,
)

from ..shared._driver_calls import left_out
from ..shared._places import first_line, place
from ..shared._words import count, percent, plural, time

_CALLS = ("Malloc", "Free")
# Pinned and managed memory of the host are another matter, and so are the pools of CUDA graphs.
_NOT = ("Host", "Managed", "Async", "FromPool", "Array", "MallocPitch")


def check(
    trace: Trace,
    steps: Steps,
    scale: Scale,
    price: Price,
    busy: GpuBusy,
    lines: Lines,
    *,
    min_share: float = 0.01,  # a call to remove, or one variable to set; below 1 % of the step the gain is noise
) -> Iterator[Finding]:
    events = trace.events
    calls = events.of(Category.RUNTIME) & events.named(*_CALLS)
    if not calls.any():
        return
    calls &= ~events.named(*_NOT) & events.named("cuda", "hip") & (steps.step_of(events.start_ns) >= 0)
    rows = np.flatnonzero(calls)
    if not len(rows):
        return
    spent_us, saving = left_out(price, busy, rows)
    if saving.high_us < min_share * scale.step_us:
        return
    frees = int((events.named("Free") & calls).sum())
    where = first_line(lines, rows)
    yield Finding(
        message=(
            f"The driver allocates device memory in {plural((len(rows) - frees) / steps.count, 'call')} a step and "
            f"frees it in {count(frees / steps.count)}{place(where)}: {time(scale.scaled(spent_us))} of each step "
            f"({percent(spent_us / steps.step_us)}) in calls that a training in steady state does not make."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"allocations": (len(rows) - frees) / steps.count, "frees": frees / steps.count, "calls_us": spent_us},
        fix=Fix(
            "Remove `torch.cuda.empty_cache()`" if frees else "Set `expandable_segments:True`",
            "exact",
            "optimizer.step()\ntorch.cuda.empty_cache()" if frees else "python train.py",
            "optimizer.step()" if frees else "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py",
        ),
        at_most="medium",
    )


_MALLOC = Ev("cudaMalloc", "cuda_runtime")
_FREE = Ev("cudaFree", "cuda_runtime")
_STEPS = """
    step   [1                         ][2                         ]
    cpu    [F  ][A   ][G  ][Z      ]    [F  ][A   ][G  ][Z      ]
    gpu 7   [K   ]     [K  ]             [K   ]     [K  ]
    """

EXAMPLES = [
    Example(
        "the cache is emptied in each step",
        draw(_STEPS, us=100, F=FORWARD, G=FORWARD, A=_MALLOC, Z=_FREE, K=GEMM),
        saves_us=(0, 1600),
        says=("allocates device memory in 1 call a step and frees it in 1",),
    ),
    Example(
        "pinned memory of the host",
        draw(
            _STEPS,
            us=100,
            F=FORWARD,
            G=FORWARD,
            A=Ev("cudaHostAlloc", "cuda_runtime"),
            Z=Ev("cudaFreeHost", "cuda_runtime"),
            K=GEMM,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "an allocation beside a device that has enough to do",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [F  ][A]                     [F  ][A]
            gpu 7   [K                          ][K                          ]
            """,
            us=100,
            F=FORWARD,
            A=_MALLOC,
            K=GEMM,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "memory is kept",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [F  ][G  ]                   [F  ][G  ]
            gpu 7   [K   ][K  ]                  [K   ][K  ]
            """,
            us=100,
            F=FORWARD,
            G=FORWARD,
            K=GEMM,
        ),
        saves_us=None,
    ),
]
