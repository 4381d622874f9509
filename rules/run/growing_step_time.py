"""Training steps take longer and longer.

## What it looks at
All steps of the run, to its end, without the profiler: whether they became slower, when that began, and which lines of
the script are sampled more often since. For a shorter run, whether its step times rise from part to part. Time in
which the loop had no CPU core does not count. Ops that grow within the profiled steps are reported by slowing-steps.

## Why it costs time
The work of a step has come to depend on the number of previous steps: a list that is searched or summed in each of
them, a cache that is never emptied, hooks or callbacks that are registered again and again. What starts after hours is
in no profile of the first steps, and makes up most of a long run.

## How to fix it
At the named line, keep what the result needs instead of all that it was computed from: a running sum and a count, a
`collections.deque` with a `maxlen`, a dictionary instead of a list that is searched. Register hooks and callbacks once.

## When to leave it
Lengths or resolutions that are increased on purpose as training goes on. A machine that slows down (heat, other jobs)
makes all lines slower alike, and no line is named.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import Example, Finding, Fix, GrowingOps, RankRecord, Saving, Scale, StepDrift, duration

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import place
from ..shared._rising_steps import rise_of
from ..shared._words import count, percent

# Of the representative step: it may be as short as the first ones, and then there is nothing to gain in it.
_LEAST = 0.03


def check(
    growing: GrowingOps | None,
    drift: StepDrift | None,
    record: RankRecord | None,
    scale: Scale,
    *,
    min_rise: float = 0.2,  # last over first part of the run: machines vary by less on their own
    min_explained: float = 0.5,  # of the rise, at lines that rose more than others: else the machine may be slower
) -> Iterator[Finding]:
    if growing is not None and len(growing.rows):
        return
    rises = drift is not None and drift.late_us >= (1 + min_rise) * drift.early_us
    if drift is not None and rises and drift.explained >= min_explained:
        yield _drifted(drift)
        return
    if drift is not None and rises and drift.throughout:
        # Too few samples tell where: a run of some seconds has some dozens of them.
        risen = _risen((drift.early_us, drift.late_us), drift.steps, drift.mean_us, drift.mean_us)
        yield replace(risen, run_us=drift.mean_us)
        return
    rise = rise_of(record.steps.unprofiled_us) if record else None
    if rise is not None and rise[1] >= (1 + min_rise) * rise[0]:
        steps = len(record.steps.unprofiled_us) if record else 0
        risen = _risen(rise, steps, scale.unprofiled.mean or scale.step_us, scale.step_us)
        if risen.saving is not None and risen.saving.high_us >= _LEAST * scale.step_us:
            yield risen


def _drifted(drift: StepDrift) -> Finding:
    first = drift.lines[0]
    more_us = max(drift.mean_us - drift.early_us, 0.0)
    part = max(drift.explained - 2 * drift.error, 0.0)
    reached = f", called{place(first.loop)}" if first.loop else ""
    return Finding(
        message=(
            f"Steps took {duration(drift.early_us)} in the first third of {count(drift.steps)} steps and "
            f"{duration(drift.late_us)} in the last quarter; that began after about step {count(drift.began)}. Most of "
            f"the added time is spent{place(first.source)}{reached}: {duration(first.early_us)} a step before, "
            f"{duration(first.late_us)} since."
        ),
        saving=Saving(
            part * more_us,
            more_us,
            "measured",
            "all steps of the run as short as those of its first third; low: only the samples at these lines",
        ),
        where=tuple(dict.fromkeys(line.source for line in drift.lines)),
        facts={
            "early_us": drift.early_us,
            "late_us": drift.late_us,
            "began_step": drift.began,
            "steps": drift.steps,
            "explained": drift.explained,
        },
        fix=_AS_AT_FIRST,
        measured_us=drift.late_us - drift.early_us,
        run_us=drift.mean_us,
    )


def _risen(rise: tuple[float, float], steps: int, mean_us: float, step_us: float) -> Finding:
    """mean_us: of these steps;  step_us: the step that the saving refers to."""
    first, last = rise
    share = min(max(1 - first / mean_us, 0.0), 1.0)
    return Finding(
        message=(
            f"Steps take {percent(last / first - 1)} longer at the end than at the start of {steps} steps without the "
            f"profiler, {duration(last)} and {duration(first)}, and rise throughout the run."
        ),
        saving=Saving(
            0.0,
            share * step_us,
            "measured",
            "all steps as short as the first; nothing if the machine itself slows down",
        ),
        facts={"first_us": first, "last_us": last, "steps": steps},
        fix=_AS_AT_FIRST,
        at_most="medium",
    )


_AS_AT_FIRST = Fix(
    "Keep the data that this line processes from growing with the run",
    "numerics",
    "seen.append(loss.item())\naverage = sum(seen) / len(seen)",
    "total += loss.item()\naverage = total / (step + 1)",
)


def _times(first: float, last: float, jump: bool = False) -> dict[str, object]:
    """200 steps that rise evenly, or all at once in the middle, with every third one a little longer."""
    shape = [float(number >= 100) if jump else number / 200 for number in range(200)]
    times = [first + (last - first) * part + 0.02 * first * (number % 3) for number, part in enumerate(shape)]
    return {"steps": {"unprofiled_us": times}}


def _run(late_us: float, hits: int, others: int, by_us: float = 10.0) -> dict[str, object]:
    """24 stretches of 100 steps of 10 ms, the last twelve slower, and samples at a line of a log and at others.

    by_us: how much longer a step is in each stretch than in the one before.
    """
    stretches = range(24)
    late = [number >= 12 for number in stretches]
    seen = {"file": "train.py", "function": "main"}
    trend = {
        "first": [100 * number for number in stretches],
        "steps": [100] * 24,
        "usual_us": [(late_us if late[number] else 10_000.0) + by_us * number for number in stretches],
        "spent_us": [1e6] * 24,
        "queued_us": [0.0] * 24,
        "samples": [10 + (hits + others) * one for one in late],
        "lines": [
            {**seen, "line": 30, "loop_file": "train.py", "loop_line": 30, "hits": [10 + others * one for one in late]},
            {**seen, "line": 8, "loop_file": "train.py", "loop_line": 31, "hits": [hits * one for one in late]},
        ],
    }
    return {"run": {"trend": trend}}


EXAMPLES = [
    Example(
        "a line of a log that takes half of each step in the second half of the run",
        STEPS_ON_CPU,
        facts=_run(20_000.0, 10, 0),
        saves_us=(4000, 5500),
        says=("train.py:8", "called at train.py:31", "after about step 1,200"),
        fixes=("growing with the run",),
    ),
    Example(
        "a machine that slows down: every line takes longer alike",
        STEPS_ON_CPU,
        facts=_run(20_000.0, 0, 10),
        near_miss=True,
    ),
    Example(
        "steps that rise throughout the run, with too few samples to tell where",
        STEPS_ON_CPU,
        facts=_run(14_000.0, 0, 10, by_us=400.0),
        saves_us=(0, 12_000),
        says=("rise throughout the run",),
    ),
    Example(
        "times that rise, and no op that grows",
        STEPS_ON_CPU,
        facts=_times(10_000.0, 16_000.0),
        saves_us=(0, 3500),
        says=("longer at the end",),
    ),
    Example(
        "a neighbour that came in the middle of the run",
        STEPS_ON_CPU,
        facts=_times(10_000.0, 16_000.0, jump=True),
        near_miss=True,
    ),
    Example("the same at the end as at the start", STEPS_ON_CPU, facts=_run(10_000.0, 0, 10)),
]
