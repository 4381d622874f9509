"""Pinned memory is allocated and freed within the steps.

## What it looks at
Calls of `cudaHostAlloc`, `cudaFreeHost` and similar functions on the training loop's thread inside the profiled steps.
PyTorch caches pinned host memory for the next tensor of that size, so a training in steady state makes no such calls.

## Why it costs time
The driver locks page after page and maps them for the device: some hundred microseconds for each megabyte, during
which the loop waits, and freeing the memory waits for the device. `x.pin_memory()` in the loop on tensors of ever new
sizes causes it, and so do libraries that pin their own buffers in each step.

## How to fix it
Let the DataLoader pin batches (`pin_memory=True`): a background thread does it during the step. Or allocate one pinned
buffer before the loop and copy each batch into it.

## When to leave it
Sizes that occur for the first time and are cached from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import FORWARD, Category, Ev, Example, Finding, Fix, GpuBusy, Lines, Price, draw, duration

from ..shared._driver_calls import KEPT, driver_calls
from ..shared._places import place
from ..shared._words import percent, plural

_CALLS = ("HostAlloc", "MallocHost", "HostMalloc", "FreeHost", "HostFree", "HostRegister", "HostUnregister")


def check(
    price: Price,
    busy: GpuBusy,
    lines: Lines,
    *,
    min_share: float = 0.01,  # one argument of the loader; below 1 % of the step the gain is noise
) -> Iterator[Finding]:
    events, steps = price.ops.events, price.ops.steps
    calls = events.of(Category.RUNTIME) & events.named(*_CALLS) & events.named("cu", "hip")
    rows = np.flatnonzero(calls & (events.thread == steps.main_thread) & (steps.step_of(events.start_ns) >= 0))
    found = driver_calls(price, busy, lines, rows, min_share)
    if found is None:
        return
    yield found.finding(
        f"Pinned memory is allocated or freed in {plural(len(rows) / steps.count, 'call')} a step{place(found.where)}, "
        f"for which the loop waits {duration(price.scale.scaled(found.us))} ({percent(found.us / steps.step_us)}).",
        {"calls": len(rows) / steps.count},
        Fix(
            "Set `pin_memory=True` on the DataLoader instead of calling `pin_memory()`",
            "exact",
            "x = x.pin_memory().to(device, non_blocking=True)",
            "loader = DataLoader(dataset, pin_memory=True, ...)\nx = x.to(device, non_blocking=True)",
        ),
    )


_PIN = Ev("cudaHostAlloc", "cuda_runtime")
_STEPS = """
    step   [1                         ][2                         ]
    cpu    [A      ][F  ][G  ]          [A      ][F  ][G  ]
    gpu 7           [K   ][K  ]                  [K   ][K  ]
    """

EXAMPLES = [
    Example(
        "each batch is pinned anew",
        draw(_STEPS, us=100, A=_PIN, G=FORWARD),
        saves_us=(0, 900),
        says=("in 1 call a step",),
    ),
    Example(
        "the loader's own thread pins",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [F  ][G  ]                   [F  ][G  ]
            cpu 2  [A      ]                    [A      ]
            gpu 7  [K   ][K  ]                  [K   ][K  ]
            """,
            us=100,
            A=_PIN,
            G=FORWARD,
        ),
        near_miss=True,
    ),
    KEPT,
]
