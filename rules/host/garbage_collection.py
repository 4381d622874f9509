"""Python's garbage collector pauses the training loop.

## What it looks at
Pauses of Python's cyclic garbage collector during the steps that were timed without the profiler, as capture
recorded them. If they are too few to tell how often they come: the share of the whole run that passes at the line that
calls `gc.collect()`. Pauses that are longer than any of these steps lie between steps, as where a library collects at
the end of each epoch; they are compared with the time of the run, not with that of a step.

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

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from advisor.api import (
    Ev,
    Example,
    Finding,
    Fix,
    LineCosts,
    Missing,
    RankRecord,
    RunPart,
    Saving,
    Scale,
    Source,
    Treatment,
    WatchedRun,
    draw,
    duration,
)

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import calls_collector, place
from ..shared._run_examples import run_of, sample
from ..shared._run_parts import each_hour, finding_of, is_known, narrowed, saving_of, watched
from ..shared._words import often, percent, plural

CONFIRMED = "measured on a CPU: gc.collect() after each step, and automatic full collections every 50 steps"

# Collections that the interpreter starts are mostly short: those of young objects, hundreds for each of all objects.
# Where most pauses are about as long as the longest, the script calls the collector itself; so it does where the only
# line of its text that calls it is also the one that takes as long as the pauses, however much they differ.
_ALIKE = 0.5
# Listening begins and ends with a phase of the capture, a step later than timing does: so many steps at most were
# listened to and not timed.
_UNTIMED_STEPS = 3
# Parts of a run that a script may call the collector in, beside its steps.
_BETWEEN_STEPS = ("other", "epoch_end", "logging")


def check(
    record: RankRecord,
    scale: Scale,
    costs: LineCosts | None,
    run: WatchedRun | None,
    *,
    min_share: float = 0.02,  # two lines before the loop; below 2 % of the step the gain is within its noise
) -> Iterator[Finding]:
    if record.gc_pauses_us is None or not (record.steps.unprofiled_us or scale.unprofiled.n):
        raise Missing("pauses of the garbage collector were not recorded; capture the script with `advisor run`")
    part = next(filter(None, (_called(run, kind, record) for kind in _BETWEEN_STEPS)), None) if run else None
    stands = (part.lines[0].source, part.us / run.steps) if run and part else None
    found = _in_steps(record, scale, costs, stands, min_share) or _in_run(run, part, min_share)
    if found:
        yield found
    elif run is not None and part is None:
        yield from _between(run, record, min_share)


def _in_steps(
    record: RankRecord, scale: Scale, costs: LineCosts | None, stands: tuple[Source, float] | None, min_share: float
) -> Finding | None:
    """Pauses that the timed steps had often enough to tell what they cost each.

    stands: where the script calls the collector, and for how long the run stands there per step, µs
    """
    # All steps that were timed, before the window and after it: the pauses are those of all of them.
    times, pauses = scale.unprofiled, record.gc_pauses_us
    timed_us = record.steps.unprofiled_us or [times.mean or scale.step_us] * (times.n or 0)
    if not pauses:
        return None
    steps, mean_us = len(timed_us), statistics.fmean(timed_us)
    line = _line(costs, sum(pauses) / steps)
    seen = line is not None and calls_collector(line, record)
    # The window may hold none of the steps that call it; then the run tells.
    stood = stands is not None and stands[1] >= _ALIKE * sum(pauses) / steps
    if stands and stood and not seen:
        line = stands[0]
    if not (seen or stood):
        pauses = [pause for pause in pauses if pause <= _longest_us(record)]
    if not pauses:
        return None
    called = seen or stood or statistics.median(pauses) >= _ALIKE * max(pauses)
    long = pauses if seen else _long(pauses, stood=stood)
    # What comes in a rhythm was seen once more or once less than its rhythm says, by where the first step fell; of one
    # pause alone nobody knows whether it comes again.
    least_us = (len(long) - 1) / (steps + _UNTIMED_STEPS) * statistics.fmean(long)
    most_us = (len(long) + 1) / steps * statistics.fmean(long)
    if least_us < min_share * mean_us:
        return None
    low_us, high_us = (min(us / mean_us, 1.0) * scale.step_us for us in (least_us, most_us))
    how = f"the {'' if called else 'long '}pauses as a share of the mean step; one fewer or one more than observed"
    # A share of the mean step is what the training gains, whether or not an ordinary step has a pause.
    saving = Saving(low_us, high_us, "measured", how)
    return _told(pauses, (steps, mean_us), len(long), saving, line if called else None, called=called)


def _told(
    pauses: Sequence[float],
    timed: tuple[int, float],
    long: int,
    saving: Saving,
    line: Source | None,
    *,
    called: bool,
) -> Finding:
    """The finding of pauses of so many timed steps, which took so many µs on average. long: how many are long ones."""
    steps, mean_us = timed
    pause_us, per_step = sum(pauses) / steps, len(pauses) / steps
    return Finding(
        message=(
            f"Python's garbage collector runs {often(per_step)} and pauses the training loop for {duration(pause_us)} "
            f"per step ({percent(min(pause_us / mean_us, 1.0))} of the mean step); the longest pause takes "
            f"{duration(max(pauses))}."
        ),
        saving=saving,
        where=(line,) if line else (),
        facts={
            "pause_us": pause_us,
            "pauses_per_step": per_step,
            "longest_us": max(pauses),
            "long_pauses": long,
            "timed_steps": steps,
            "called": called,
        },
        fix=_REMOVED if called else _FROZEN,
    )


def _long(pauses: Sequence[float], *, stood: bool) -> list[float]:
    """The long ones. stood: the script stands in calls of the collector.

    Other work on the machine makes calls of one script differ; the interpreter's own are far shorter than most.
    """
    usual_us = statistics.fmean(pauses) if stood else max(pauses)
    return [pause for pause in pauses if pause >= _ALIKE * usual_us]


def _in_run(run: WatchedRun | None, part: RunPart | None, min_share: float) -> Finding | None:
    """Calls of the script between steps, of which the timed steps had too few: how much of the run they take."""
    # Of one call alone nobody knows whether it comes again.
    if run is None or part is None or (part.times or 0) < 2 or not is_known(part, run, min_share):
        return None
    share = part.us / run.loop_us
    return finding_of(
        run,
        part,
        f"`gc.collect()`{place(part.lines[0].source)} takes {percent(share)} of {watched(run)}, "
        f"{duration(part.us / (part.times or 1))} each time ({each_hour(share)}).",
        saving_of(run, part, 1.0, 1.0, "the time at this line, as far as samples of the run tell it"),
        _REMOVED,
        "high",
    )


def _between(run: WatchedRun, record: RankRecord, min_share: float) -> Iterator[Finding]:
    """Pauses that are longer than any timed step, and so lie between steps, as where a library collects at each epoch.

    Freezing leaves a collection that somebody calls nothing but what is new; how long that takes is not known.
    """
    pauses, steps = record.gc_pauses_us or [], len(record.steps.unprofiled_us)
    long = [pause for pause in pauses if pause > _longest_us(record)]
    # Of one alone nobody knows whether it comes again.
    if len(long) < 2:
        return
    run_us = run.loop_us / run.steps
    pause_us = min(sum(long) / steps, run_us)
    if (len(long) - 1) / len(long) * pause_us < min_share * run_us:
        return
    yield Finding(
        message=(
            f"Python's garbage collector pauses the run between training steps, {plural(len(long), 'time')} in {steps} "
            f"steps for {duration(statistics.fmean(long))} each: {percent(pause_us / run_us)} of {watched(run)}."
        ),
        saving=Saving(0.0, pause_us, "measured", "high: these pauses; low: most of what is collected is new"),
        facts={"pause_us": pause_us, "longest_us": max(long), "long_pauses": len(long), "timed_steps": steps},
        fix=_FROZEN,
        at_most="high",
        measured_us=pause_us,
        run_us=run_us,
    )


def _longest_us(record: RankRecord) -> float:
    """The longest step that was timed without the profiler: no longer pause was in one of them."""
    return max(record.steps.unprofiled_us, default=math.inf)


def _called(run: WatchedRun, kind: str, record: RankRecord) -> RunPart | None:
    """The part of this kind that passes where the script calls the collector, if that is what takes most of it."""
    part = run.loop.get(kind)
    if part is None or not part.lines or not calls_collector(part.lines[0].source, record):
        return None
    return replace(narrowed(part, part.lines[0].us), lines=part.lines[:1])


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


def _now_and_then(line: int, times: int) -> dict[str, Any]:
    """A run of 400 steps in 40 s; at a line of train.py the loop stands for 20 s more, so many times."""
    steps, long = sample("step", 80, 150, "forward", hits=200), sample("long", line, times, hits=10 * times)
    return run_of({"step": (38.0, 380), "long": (22.0, times)}, steps, long, usual_us=2e6)


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
        draw(_CALLED, us=1000, C=Ev("train.py(31): on_step_end")),
        facts=_EVEN | _SET_AT | {"gc_pauses_us": [1000.0, 4000.0] + [1500.0] * 8},
        saves_us=(1100, 2000),
        fixes=("Remove `gc.collect()`",),
        says=("once a step",),
    ),
    Example(
        "calls of the script that differ by more, in steps that the window does not hold",
        STEPS_ON_CPU,
        facts={"steps": {"unprofiled_us": [74000.0] * 400}}
        | _SET_AT
        | _now_and_then(31, 100)
        | {"gc_pauses_us": [200e3] * 80 + [500e3] * 20 + [100.0] * 20},
        saves_us=(60000, 70000),
        says=("once in 3 steps",),
        fixes=("Remove `gc.collect()`",),
    ),
    Example(
        "the interpreter's own beside a line of Python, in a script that calls the collector once before the loop",
        draw(_CALLED, us=1000, C=Ev("train.py(40): on_step_end")),
        facts=_EVEN | _SET_AT | {"gc_pauses_us": [200.0] * 8 + [4000.0] * 3},
        saves_us=(560, 1700),
        fixes=("Call `gc.freeze()`",),
    ),
    Example(
        "two full ones in a hundred steps, of which twenty stand for the script",
        STEPS_ON_CPU,
        facts={
            "steps": {"unprofiled_us": [9000.0] * 98 + [29000.0] * 2, "timed_before": 20},
            "gc_pauses_us": [*[30.0] * 400, 20000.0, 20000.0],
        },
        saves_us=(180, 600),
        says=("4 times a step",),
    ),
    Example(
        "six that are longer than any step: a library collects after each epoch",
        STEPS_ON_CPU,
        facts=_EVEN
        | _now_and_then(90, 20)
        | {"steps": {"unprofiled_us": [9000.0] * 300}, "gc_pauses_us": [*[30.0] * 400, *[900e3] * 6]},
        saves_us=(0, 18_000),
        says=("between training steps, 6 times in 300 steps", "for 900 ms each: 12 % of the"),
        fixes=("Call `gc.freeze()`",),
    ),
    Example(
        "as many as long as a step, in a run of long steps",
        STEPS_ON_CPU,
        facts=_now_and_then(90, 20)
        | {"steps": {"unprofiled_us": [9000.0] * 300}, "gc_pauses_us": [*[30.0] * 400, *[9500.0] * 6]},
        near_miss=True,
    ),
    Example(
        "one long collection that may never come again",
        STEPS_ON_CPU,
        facts=_EVEN | {"gc_pauses_us": [50.0, 50.0, 90000.0]},
        near_miss=True,
    ),
    Example(
        "calls every 20 steps, one of which is in the timed steps",
        STEPS_ON_CPU,
        facts=_EVEN | _SET_AT | _now_and_then(31, 20) | {"gc_pauses_us": [50.0, 90000.0]},
        saves_us=(40000, 60000),
        says=("`gc.collect()` at train.py:31 takes 33 %", "1 s each time"),
        fixes=("Remove `gc.collect()`",),
    ),
    Example(
        "one call of the script that may never come again",
        STEPS_ON_CPU,
        facts=_EVEN | _SET_AT | _now_and_then(31, 1) | {"gc_pauses_us": [50.0, 90000.0]},
        near_miss=True,
    ),
    Example(
        "other work between steps, in a script that calls the collector once before the loop",
        STEPS_ON_CPU,
        facts=_EVEN | _SET_AT | _now_and_then(90, 20) | {"gc_pauses_us": [50.0, 90000.0]},
        near_miss=True,
    ),
    Example(
        "small collections that take half a per cent",
        STEPS_ON_CPU,
        facts=_EVEN | {"gc_pauses_us": [45.0] * 10},
        near_miss=True,
    ),
    Example("no collection", STEPS_ON_CPU, facts=_EVEN | {"gc_pauses_us": []}),
    Example("a bare trace does not tell", STEPS_ON_CPU, near_miss=True, skipped="not captured by `advisor run`"),
]
