"""Python's garbage collector stops the step.

## What it looks at
Pauses of Python's cyclic garbage collector during the steps that were timed without the profiler, as capture
recorded them.

## Why it costs time
A full collection visits every object that can hold another: with large models, data sets in Python lists and loaded
libraries that is millions, and nothing else runs meanwhile. It comes at random steps, on each rank at another one,
and ranks wait for each other.

## How to fix it
After everything is built: `gc.collect(); gc.freeze()`, so that what lives for the whole run is never visited again.
Or `gc.disable()` and one `gc.collect()` every few hundred steps, on all ranks at the same step. Remove
`gc.collect()` from the loop: freeing tensors does not need it.

## When to leave it
Loops that make reference cycles with large tensors in them: without collections memory grows.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import BACKWARD, FORWARD, Example, Finding, Fix, Missing, RankRecord, Saving, Scale, draw

from ._words import count, percent, time


def check(
    record: RankRecord,
    scale: Scale,
    *,
    min_share: float = 0.01,  # two lines before the loop; below 1 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    steps = scale.unprofiled.n
    if record.gc_pauses_us is None or not steps:
        raise Missing("pauses of the garbage collector were not recorded; capture the script with `advisor run`")
    pause_us = sum(record.gc_pauses_us) / steps
    mean_us = scale.unprofiled.mean or scale.step_us
    if pause_us < min_share * mean_us:
        return
    per_step = len(record.gc_pauses_us) / steps
    # Spread evenly, pauses are part of every step; a rare pause is in the mean and in no ordinary step.
    shown_us = min(pause_us, scale.step_us) if per_step >= 1 else min(pause_us, scale.step_us * min_share)
    often = "once" if per_step == 1 else f"{count(per_step)} times"
    yield Finding(
        message=(
            f"Python's garbage collector runs {often} a step and stops it for {time(pause_us)} "
            f"({percent(pause_us / mean_us)} of the mean step), at most {time(max(record.gc_pauses_us))} at once."
        ),
        saving=Saving(
            0.0,
            shown_us,
            "measured",
            "the pauses themselves, as an ordinary step has them; nothing where a collection is needed to free memory",
        ),
        facts={"pause_us": pause_us, "pauses_per_step": per_step, "longest_us": max(record.gc_pauses_us)},
        fix=Fix(
            "Keep what lives for the whole run out of collections",
            "exact",
            "for step, batch in enumerate(loader):",
            "gc.collect()\ngc.freeze()\nfor step, batch in enumerate(loader):",
        ),
    )


_STEPS = "step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]"
_EVEN = {"steps": {"unprofiled_us": [9000.0] * 10}}

EXAMPLES = [
    Example(
        "a collection in every step",
        draw(_STEPS, us=1000, F=FORWARD, B=BACKWARD),
        facts=_EVEN | {"gc_pauses_us": [1500.0] * 10},
        saves_us=(0, 1500),
        says=("once a step", "1.5 ms"),
    ),
    Example(
        "small collections that take half a per cent",
        draw(_STEPS, us=1000, F=FORWARD, B=BACKWARD),
        facts=_EVEN | {"gc_pauses_us": [45.0] * 10},
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "no collection",
        draw(_STEPS, us=1000, F=FORWARD, B=BACKWARD),
        facts=_EVEN | {"gc_pauses_us": []},
        saves_us=None,
    ),
    Example(
        "a bare trace does not tell",
        draw(_STEPS, us=1000, F=FORWARD, B=BACKWARD),
        saves_us=None,
        near_miss=True,
    ),
]
