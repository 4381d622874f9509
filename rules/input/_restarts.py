"""Workers that start anew with each epoch, as a device's trace shows it: Python is silent, then a fetch is long."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    NEXT_WORKERS,
    Drawing,
    Example,
    Finding,
    draw,
    duration,
)

from ..shared._restarted_workers import restarts
from ..shared._words import count
from ._loader import Seen, keep_workers

_HOW = (
    "low: nothing, if workers load too slowly as well; high: neither waits for the first batch of an epoch, nor the "
    "Python before them, in which workers end and start"
)


def advice(seen: Seen, least: float) -> Finding | None:
    """The advice to keep the workers; None without a device, or where no such pattern shows."""
    fix = keep_workers(seen.facts, seen.workers)
    if not seen.on_device or fix is None or seen.workers == 0 or seen.share < least:
        return None
    every, spans = restarts(seen.price)
    if not every:
        return None
    price = seen.price
    silent_us = price.breakdown.us_in("idle_host", spans)
    high_us = price.scale.scaled(seen.wait_us + silent_us)
    ended = duration(float(np.median(spans[:, 1] - spans[:, 0])) / 1e3)
    ending = (
        f"; nearly all of it is every {count(every)} fetches, each behind {ended} in which Python records nothing: "
    )
    message = seen.waits_for(
        price.scale.scaled(seen.wait_us), seen.share, f"{ending}workers are started again with each epoch."
    )
    saving = price.of_us(0.0, min(high_us, seen.step_us), _HOW)
    found = seen.finding(message, saving, fix, {"every": every, "silent_us": silent_us}, ("idle_input", "idle_host"))
    return replace(found, at_most="medium")


def _epochs(silent: int, length: int = 3) -> Drawing:
    """Two epochs of so many steps; before the first fetch of each nothing is recorded for so many columns of 5 ms."""
    lanes = {"step  ": "", "cpu   ": "", "gpu 7 ": ""}
    for number in range(2 * length):
        fetch = " " * silent + "[D                 ]" if number % length == 0 else "[D]"
        begun, columns = len(fetch), len(fetch) + 10
        lanes["step  "] += f"[{number:<{columns - 2}}]"
        lanes["cpu   "] += f"{fetch}[F       ]".ljust(columns)
        lanes["gpu 7 "] += (" " * (begun + 1) + "[K      ]").ljust(columns)
    return draw("\n".join(f"{lane} {boxes}" for lane, boxes in lanes.items()), us=5000, D=NEXT_WORKERS)


RESTARTED = [
    Example(
        "epochs of three batches, before each of which Python ends and starts workers",
        _epochs(silent=8),
        saves_us=(0, 50_000),
        says=("every 3 fetches", "workers are started again"),
        fixes=("persistent_workers=True",),
    ),
    Example(
        "the same without the silence: batches of slow workers come in bursts",
        _epochs(silent=0),
        saves_us=(0, 50_000),
        says=("more slowly than the step",),
    ),
    Example(
        "the same with workers that persist",
        _epochs(silent=8),
        facts={"loaders": [{"batch_size": 32, "num_workers": 2, "persistent_workers": True}]},
        saves_us=(0, 50_000),
        says=("2 workers load them too slowly",),
    ),
]
