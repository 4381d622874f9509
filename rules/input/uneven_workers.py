"""One loader worker is far slower than the others.

## What it looks at
The median time that each worker of the DataLoader takes to load a batch, as capture recorded it in the workers, and how
long the training loop waits for batches.

## Why it costs time
Workers load batches in rotation, and batches are returned in order: whenever the slowest worker is next, the loop waits
for it while batches of the others are ready. A dataset that is split over the workers by files of unequal size causes
this, and so does a worker whose files are on a slow disk.

## How to fix it
Split the data evenly: use more and smaller files than workers, and assign them round-robin
(`files[worker.id::worker.num_workers]`). `DataLoader(..., in_order=False)` (PyTorch 2.6) returns whichever batch is
ready first; the order of batches then differs from run to run.

## When to leave it
Where the loop does not wait for batches, and where the order of batches must be the same in each run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from advisor.api import (
    NEXT_WORKERS,
    Breakdown,
    Example,
    Finding,
    Fix,
    InputWaits,
    LoaderFacts,
    Missing,
    Scale,
    Steps,
    draw,
    duration,
)

from ..shared._words import count, of_step


def check(
    loader: LoaderFacts,
    waits: InputWaits,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    *,
    min_ratio: float = 2.5,  # the slowest over the median of the others; equal ones differed by 2 times on busy cores
    min_share: float = 0.03,  # of the step spent waiting for batches: below, batches of the others hide the slow ones
) -> Iterator[Finding]:
    workers = loader.loader.worker_us
    if len(workers) < 2:
        raise Missing("times of individual workers are not known: there are fewer than two, or they are not forked")
    slowest = max(workers)
    others = [us for us in workers if us is not slowest]
    typical = statistics.median(others)
    part = "idle_input" if breakdown.on_device else "input"
    wait_us = min(waits.us, breakdown.us(part))
    if slowest < min_ratio * typical or wait_us < min_share * steps.step_us:
        return
    # Evenly split, each worker takes the mean of them all; what the slowest is above that is waited for in its turns.
    even = 1 - statistics.mean(workers) / slowest
    yield Finding(
        message=(
            f"One of {count(len(workers))} loader workers takes {duration(slowest)} for a batch and the others about "
            f"{duration(typical)}: since batches are returned in order, the loop waits "
            f"{of_step(scale.scaled(wait_us), scale)} for them."
        ),
        saving=scale.saving(
            0.0, even * wait_us, "high: the same work split evenly over the workers; low: the loop waits as long as now"
        ),
        facts={"slowest_us": slowest, "others_us": typical, "wait_us": wait_us, "workers": len(workers)},
        fix=Fix(
            "Assign files to workers round-robin, or set `in_order=False`",
            "semantics",
            "files = files[worker.id * share : (worker.id + 1) * share]",
            "files = files[worker.id :: worker.num_workers]  # or DataLoader(..., in_order=False)",
        ),
        at_most="medium",
    )


_STEPS = """
    step   [1                   ][2                   ]
    cpu    [N      ][F ][B    ]   [N      ][F ][B    ]
    """


def _workers(*times_us: float) -> dict[str, Any]:
    return {"loaders": [{"num_workers": len(times_us), "worker_us": list(times_us)}]}


EXAMPLES = [
    Example(
        "one worker of four has the large files",
        draw(_STEPS, us=1000, N=NEXT_WORKERS),
        facts=_workers(10_000.0, 11_000.0, 60_000.0, 10_000.0),
        saves_us=(0, 6000),
        says=("One of 4 loader workers takes 60 ms",),
    ),
    Example(
        "the same, and a batch is always ready",
        draw(_STEPS, us=1000, N=replace(NEXT_WORKERS, fill=0.05)),
        facts=_workers(10_000.0, 11_000.0, 60_000.0, 10_000.0),
        near_miss=True,
    ),
    Example(
        "four workers alike",
        draw(_STEPS, us=1000, N=NEXT_WORKERS),
        facts=_workers(10_000.0, 11_000.0, 12_000.0, 10_000.0),
    ),
]
