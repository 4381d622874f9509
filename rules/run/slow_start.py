"""A large part of the run passes before the first step.

## What it looks at
The age of the process when its first training step ended, against its whole lifetime, if capture saw the script end.

## Why it costs time
Imports, reading and indexing the dataset, building the model, loading a checkpoint and compiling run on one core while
the accelerator waits, at every start: also after each failure, and in each trial of a search.

## How to fix it
Save what the script derives from the data (an index, tokens, statistics) and load it the next time. Let loader
workers read while the model is built. Keep compiled code between runs (`TORCHINDUCTOR_CACHE_DIR` on a persistent disk).

## When to leave it
Short trials of a training that will run for days: the time before its first step is then negligible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import Example, Finding, Fix, Missing, RankRecord, duration

from ..shared._examples import STEPS_ON_CPU
from ..shared._words import count, percent


def check(
    record: RankRecord,
    *,
    min_start_us: float = 60e6,  # a minute: imports of large libraries and a warm-up take up to half of one
    min_share: float = 0.2,  # of the whole run; in a long training the start is negligible
) -> Iterator[Finding]:
    vitals = record.vitals
    if vitals is None or vitals.first_step_us is None or vitals.age_us is None or not vitals.ended:
        raise Missing("capture did not see both the start and the end of the run; let the script end by itself")
    start_us, whole_us = vitals.first_step_us, vitals.age_us
    if start_us < min_start_us or start_us < min_share * whole_us:
        return
    yield Finding(
        message=(
            f"The first of {count(record.steps.count)} steps ended {duration(start_us)} after the start of the "
            f"process: {percent(start_us / whole_us)} of the run's {duration(whole_us)} had passed."
        ),
        # It is no part of a step: what it is worth depends on how often the script is started.
        saving=None,
        facts={"first_step_us": start_us, "run_us": whole_us},
        fix=Fix(
            "Compute what depends only on the data once, and cache it on disk",
            "exact",
            "index = build_index(files)",
            "if not cache.exists():\n    torch.save(build_index(files), cache)\nindex = torch.load(cache)",
        ),
        at_most="low",
    )


def _facts(first_s: float, age_s: float, ended: bool = True) -> dict[str, Any]:
    vitals = {"first_step_us": first_s * 1e6, "age_us": age_s * 1e6, "ended": ended}
    return {"vitals": vitals, "steps": {"count": 500}}


EXAMPLES = [
    Example(
        "two minutes of tokenising before five of training",
        STEPS_ON_CPU,
        facts=_facts(130.0, 430.0),
        saves_us="unknown",
        says=("130 s after the start", "30 %"),
    ),
    Example(
        "half an hour of indexing before an hour of training",
        STEPS_ON_CPU,
        facts=_facts(1800.0, 5400.0),
        saves_us="unknown",
        says=("1,800 s after the start", "the run's 5,400 s"),
    ),
    Example(
        "two minutes of tokenising before a long training", STEPS_ON_CPU, facts=_facts(130.0, 86_400.0), near_miss=True
    ),
    Example(
        "the same in a run that still goes on",
        STEPS_ON_CPU,
        facts=_facts(130.0, 150.0, ended=False),
        near_miss=True,
        skipped="the end of the run",
    ),
    Example("imports alone", STEPS_ON_CPU, facts=_facts(4.0, 20.0)),
]
