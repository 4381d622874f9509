"""Python's garbage collector pauses the training loop.

## What it looks at
Pauses of Python's cyclic garbage collector during the steps that were timed without the profiler, as capture
recorded them.

## Why it costs time
A full collection visits every container object: with large models, datasets in Python lists and many imported
libraries there are millions of them, and nothing else runs in the process during that time. Collections start at
arbitrary steps; with several ranks, at a different step on each, and ranks wait for each other.

## How to fix it
When everything is set up, call `gc.collect(); gc.freeze()`: objects that live for the whole run are then never visited
again. Call `gc.unfreeze()` after the loop: at the end of a process whose objects are still frozen, the libraries of
torch 2.15 report everything as leaked. Or call `gc.disable()`, and `gc.collect()` every few hundred steps, on all ranks
at the same step. Remove `gc.collect()` from the loop: tensors are freed without it.

## When to leave it
Loops that create reference cycles with large tensors in them: without collections, memory grows.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from advisor.api import (
    BACKWARD,
    FORWARD,
    Ev,
    Example,
    Finding,
    Fix,
    LineCosts,
    Missing,
    RankRecord,
    Saving,
    Scale,
    Source,
    Treatment,
    draw,
    duration,
)

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import often
from ..shared._words import percent
from ._gc_time import calls_collector

CONFIRMED = "measured on a CPU: gc.collect() after each step, and automatic full collections every 50 steps"

# Collections that the interpreter starts are mostly short: those of young objects, hundreds for each of all objects.
# Where most pauses are about as long as the longest, the script calls the collector itself; so it does where the only
# line of its text that calls it is also the one that takes as long as the pauses, however much they differ.
_ALIKE = 0.5
# Listening begins and ends with a phase of the capture, a step later than timing does: so many steps at most were
# listened to and not timed.
_UNTIMED_STEPS = 3


def check(
    record: RankRecord,
    scale: Scale,
    costs: LineCosts | None,
    *,
    min_share: float = 0.02,  # two lines before the loop; below 2 % of the step the gain is within its noise
) -> Iterator[Finding]:
    times = scale.unprofiled
    # All steps that were timed, before the window and after it: the pauses are those of all of them.
    timed_us = record.steps.unprofiled_us or [times.mean or scale.step_us] * (times.n or 0)
    pauses = record.gc_pauses_us
    if pauses is None or not timed_us:
        raise Missing("pauses of the garbage collector were not recorded; capture the script with `advisor run`")
    if not pauses:
        return
    steps, mean_us = len(timed_us), statistics.fmean(timed_us)
    line = _line(costs, sum(pauses) / steps)
    seen = line is not None and calls_collector(line, record)
    called = seen or statistics.median(pauses) >= _ALIKE * max(pauses)
    long = pauses if seen else [pause for pause in pauses if pause >= _ALIKE * max(pauses)]
    # What comes in a rhythm was seen once more or once less than its rhythm says, by where the first step fell; of one
    # pause alone nobody knows whether it comes again.
    least_us = (len(long) - 1) / (steps + _UNTIMED_STEPS) * statistics.fmean(long)
    most_us = (len(long) + 1) / steps * statistics.fmean(long)
    if least_us < min_share * mean_us:
        return
    pause_us, per_step = sum(pauses) / steps, len(pauses) / steps
    yield Finding(
        message=(
            f"Python's garbage collector runs {often(per_step)} and pauses the training loop for {duration(pause_us)} "
            f"per step ({percent(min(pause_us / mean_us, 1.0))} of the mean step); the longest pause takes "
            f"{duration(max(pauses))}."
        ),
        # A share of the mean step is what the training gains, whether or not an ordinary step has a pause.
        saving=Saving(
            min(least_us / mean_us, 1.0) * scale.step_us,
            min(most_us / mean_us, 1.0) * scale.step_us,
            "measured",
            f"the {'' if called else 'long '}pauses as a share of the mean step; one fewer or one more than observed",
        ),
        where=(line,) if called and line else (),
        facts={
            "pause_us": pause_us,
            "pauses_per_step": per_step,
            "longest_us": max(pauses),
            "long_pauses": len(long),
            "timed_steps": steps,
            "called": called,
        },
        fix=_REMOVED if called else _FROZEN,
    )


def _line(costs: LineCosts | None, pause_us: float) -> Source | None:
    """The line that is Python for about as long as the pauses take: one that calls the collector, if any does."""
    lines = [line for line in costs.lines if line.python_us >= _ALIKE * pause_us] if costs else []
    return max(lines, key=lambda line: line.python_us).source if lines else None


_FROZEN = Fix(
    "Call `gc.freeze()` before the loop, so that long-lived objects are not visited again",
    "exact",
    "for step, batch in enumerate(loader):",
    "gc.collect()\ngc.freeze()\nfor step, batch in enumerate(loader):\n    ...\ngc.unfreeze()  # after the loop",
    Treatment("gc", {"freeze": True}),
)
_REMOVED = Fix(
    "Remove `gc.collect()` from the loop: tensors are freed without it",
    "exact",
    "for step, batch in enumerate(loader):\n    ...\n    gc.collect()",
    "for step, batch in enumerate(loader):\n    ...",
    Treatment("calls", {"names": ["gc.collect"]}),
)


_EVEN = {"steps": {"unprofiled_us": [9000.0] * 10}}
_CALLED = "step [1           ][2           ]\ncpu  [F   ][B  ][C][F   ][B  ][C]"
_SET_AT = {"settings": {"set_at": {"gc.collect": {"file": "train.py", "line": 31}}}}

EXAMPLES = [
    Example(
        "a collection in every step",
        STEPS_ON_CPU,
        facts=_EVEN | {"gc_pauses_us": [1500.0] * 10},
        saves_us=(1000, 1700),
        says=("once a step", "1.5 ms"),
    ),
    Example(
        "long ones between short ones, as the interpreter runs them",
        STEPS_ON_CPU,
        facts=_EVEN | {"gc_pauses_us": [100.0, 100.0, 5000.0, 100.0, 5000.0, 100.0]},
        saves_us=(380, 1500),
        says=("longest pause takes 5 ms",),
    ),
    Example(
        "calls of the script on a busy machine, so that one takes four times as long as another",
        draw(_CALLED, us=1000, F=FORWARD, B=BACKWARD, C=Ev("train.py(31): on_step_end")),
        facts=_EVEN | _SET_AT | {"gc_pauses_us": [1000.0, 4000.0] + [1500.0] * 8},
        saves_us=(1100, 2000),
        fixes=("Remove `gc.collect()`",),
        says=("once a step",),
    ),
    Example(
        "the interpreter's own beside a line of Python, in a script that calls the collector once before the loop",
        draw(_CALLED, us=1000, F=FORWARD, B=BACKWARD, C=Ev("train.py(40): on_step_end")),
        facts=_EVEN | _SET_AT | {"gc_pauses_us": [200.0] * 8 + [4000.0] * 3},
        saves_us=(560, 1700),
        fixes=("Call `gc.freeze()`",),
    ),
    Example(
        "two full ones in a hundred steps, of which twenty stand for the script",
        STEPS_ON_CPU,
        facts={
            "steps": {"unprofiled_us": [9000.0] * 100, "timed_before": 20},
            "gc_pauses_us": [*[30.0] * 400, 20000.0, 20000.0],
        },
        saves_us=(190, 600),
        says=("4 times a step",),
    ),
    Example(
        "one long collection that may never come again",
        STEPS_ON_CPU,
        facts=_EVEN | {"gc_pauses_us": [50.0, 50.0, 90000.0]},
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "small collections that take half a per cent",
        STEPS_ON_CPU,
        facts=_EVEN | {"gc_pauses_us": [45.0] * 10},
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "no collection",
        STEPS_ON_CPU,
        facts=_EVEN | {"gc_pauses_us": []},
        saves_us=None,
    ),
    Example(
        "a bare trace does not tell",
        STEPS_ON_CPU,
        saves_us=None,
        near_miss=True,
        skipped="not captured by `advisor run`",
    ),
]
