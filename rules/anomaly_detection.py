"""Autograd's anomaly detection is on.

## What it looks at
Whether `torch.autograd.set_detect_anomaly(True)` or `detect_anomaly()` was in force in the profiled steps, as
capture recorded it.

## Why it costs time
Each forward op stores a stack trace for the case that its gradient goes wrong, and each backward op checks its
results for NaN. Training becomes slower by a factor, not by a few per cent.

## How to fix it
Remove it, or put it behind an option that is off. `torch.isfinite(loss)` once in a while tells of a NaN as well.

## When to leave it
While a NaN is being hunted: the stack trace names the forward op whose gradient went wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import BACKWARD, FORWARD, Breakdown, Example, Finding, Fix, Missing, RankRecord, Scale, draw

from ._words import time


def check(record: RankRecord, breakdown: Breakdown, scale: Scale) -> Iterator[Finding]:
    on = record.settings.anomaly_detection
    if on is None:
        raise Missing("capture could not see whether anomaly detection was on")
    if not on:
        return
    yield Finding(
        message=(
            f"Anomaly detection was on in these steps of {time(scale.step_us)}: each op stores a stack trace and each "
            "gradient is checked for invalid numbers."
        ),
        facts={"anomaly_detection": True},
        fix=Fix("Turn anomaly detection off", "exact", "torch.autograd.set_detect_anomaly(True)", ""),
        claims=("backward", "forward") if not breakdown.on_device else (),
    )


_STEPS = "step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]"

EXAMPLES = [
    Example(
        "left on after a hunt",
        draw(_STEPS, us=1000, F=FORWARD, B=BACKWARD),
        facts={"settings": {"anomaly_detection": True}},
        saves_us="unknown",
        says=("stack trace",),
    ),
    Example(
        "off",
        draw(_STEPS, us=1000, F=FORWARD, B=BACKWARD),
        facts={"settings": {"anomaly_detection": False}},
        saves_us=None,
    ),
    Example(
        "a bare trace does not tell",
        draw(_STEPS, us=1000, F=FORWARD, B=BACKWARD),
        saves_us=None,
        near_miss=True,
    ),
]
