"""Freed memory goes back to the system and is faulted in again in each step.

## What it looks at
Page faults of the process in steps that were timed without the profiler, less the pages by which its memory grew in
them: pages that it had before, returned, and uses again. Only with glibc's malloc, without a device, and without loader
workers, whose batches come in new pages of their own. What a fault costs is measured on this machine.

## Why it costs time
glibc returns free memory at the end of its heap to the system as soon as there is more of it than a threshold, and
large blocks at once. The next tensor of that size begins on pages that the system has to find, to fill with zeros and
to enter into the page table at their first use: 1.8 to 2.5 µs for each 4 KB on the virtual machine where this was
measured (60 samples of the calibration). Whether it comes to that depends on what else lies in the heap, so that the
same script may be faster or slower for no visible reason: its thousand faults a step came and went with one import
more.

## How to fix it
Set `MALLOC_TRIM_THRESHOLD_` and `MALLOC_MMAP_THRESHOLD_` (glibc reads them when the process starts), so that the
process keeps what it frees. Blocks of more than 32 MB are returned whatever is set (glibc 2.36, tried with a tensor of
64 MB: 16,384 faults with and without); another allocator keeps those, too, such as jemalloc or TCMalloc,
which PyTorch's tuning guide recommends.

## When to leave it
Where memory is short: the process then holds the most that it ever used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    BACKWARD,
    FORWARD,
    Calibration,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Missing,
    Price,
    RankRecord,
    Saving,
    Treatment,
    draw,
    element_counts,
)

from ..shared._words import count, percent, time

_KEPT = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "1073741824"}
# glibc maps larger blocks at each use, whatever is set: half of its largest heap (malloc/malloc.c, HEAP_MAX_SIZE).
_MAPPED_BYTES = 32 << 20
_KEEP = Fix(
    "Let the process keep the memory that it frees",
    "exact",
    "python train.py",
    " ".join(f"{name}={value}" for name, value in _KEPT.items()) + " python train.py",
    Treatment("environment", _KEPT),
)


def check(
    price: Price,
    record: RankRecord,
    calibration: Calibration,
    *,
    min_share: float = 0.03,  # two variables to set, and more memory held: below 3 % of the step it is not worth it
) -> Iterator[Finding]:
    vitals = record.vitals
    if price.on_device or price.ops.device.kind != "none" or any(one.num_workers for one in record.loaders):
        return
    if vitals is None or vitals.page_faults is None or not vitals.timed_steps:
        raise Missing("page faults were not recorded; capture the script with `advisor run`")
    if record.settings.allocator != "glibc" or any((record.environment or {}).get(name) for name in _KEPT):
        return
    faults = (vitals.page_faults - max(vitals.grown_pages or 0, 0)) / vitals.timed_steps
    cost = calibration.page_fault_us
    if faults < 1:
        return
    if cost is None:
        raise Missing("what a page fault costs on this machine was not measured; run without `--no-calibrate`")
    threads = max(record.settings.threads or 1, 1)
    step_us = price.scale.step_us
    large = _largest_bytes(price.ops.events) > _MAPPED_BYTES
    low_us = 0.0 if large else min(faults * cost.low / threads, step_us)
    high_us = min(faults * cost.high, step_us)
    if high_us < min_share * step_us:
        return
    yield Finding(
        message=(
            f"Each step faults in {count(faults)} pages of memory that the process had freed and returned to the "
            f"system: {time(high_us)} at most ({percent(high_us / step_us)} of the step)."
        ),
        saving=Saving(low_us, high_us, "modelled", _how(threads, large)),
        facts={"faults": faults, "fault_low_us": cost.low, "fault_high_us": cost.high, "steps": vitals.timed_steps},
        fix=_KEEP,
        claims=("forward", "backward", "optimizer", "other_ops", "host"),
        at_most="medium",
    )


def _how(threads: int, large: bool) -> str:
    low = "nothing, as tensors of more than 32 MB may be mapped at each use" if large else ""
    low = low or ("shared by all threads" if threads > 1 else "")
    return "page faults of steps without the profiler, each at what it costs on this machine" + (
        low and f"; low: {low}"
    )


def _largest_bytes(events: Events) -> int:
    """Of the tensors that ops were given, at four bytes a number."""
    return 4 * max((max(element_counts(dims), default=0) for dims in events.dims_table), default=0)


_DRAWN = draw("step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]", us=1000, F=FORWARD, B=BACKWARD)


def _facts(faults: int, grown: int = 0, **more: Any) -> dict[str, Any]:
    """Thirty steps of 10 ms, with so many page faults, and so many pages more in the end."""
    return {
        "settings": {"threads": 2, "allocator": "glibc"},
        "vitals": {"timed_steps": 30, "timed_us": 3e5, "page_faults": faults, "grown_pages": grown},
        "steps": {"unprofiled_us": [10_000.0] * 30},
        "calibration": {"quantities": {"page_fault_us": [0.8, 1.0, 1.2, 60]}},
    } | more


EXAMPLES = [
    Example(
        "a thousand pages a step",
        _DRAWN,
        facts=_facts(30_000),
        saves_us=(400, 1200),
        says=("1,000 pages", "12 %"),
        fixes=("MALLOC_TRIM_THRESHOLD_",),
    ),
    Example(
        "a tensor of 64 MB, which no threshold keeps",
        draw(
            "step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]",
            us=1000,
            F=Ev(FORWARD.name, dims=[[16, 1 << 20]]),
            B=BACKWARD,
        ),
        facts=_facts(30_000),
        saves_us=(0, 1200),
        says=("1,000 pages",),
    ),
    Example("memory that grows by as much", _DRAWN, facts=_facts(30_000, 29_500), saves_us=None, near_miss=True),
    Example(
        "two loader workers, whose batches come in new pages",
        _DRAWN,
        facts=_facts(30_000, loaders=[{"num_workers": 2}]),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "another allocator",
        _DRAWN,
        facts=_facts(30_000, settings={"threads": 2, "allocator": "jemalloc"}),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "thresholds that the user has set",
        _DRAWN,
        facts=_facts(30_000, environment={"MALLOC_TRIM_THRESHOLD_": "268435456"}),
        saves_us=None,
        near_miss=True,
    ),
    Example("forty pages a step", _DRAWN, facts=_facts(1200), saves_us=None),
    Example(
        "a machine that was not measured",
        _DRAWN,
        facts=_facts(30_000, calibration=None),
        saves_us=None,
        skipped="page fault costs",
    ),
]
