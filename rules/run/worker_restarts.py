"""Loader workers are started again for each epoch.

## What it looks at
The time between training steps in which a DataLoader starts or stops its workers, or waits for the first batch of new
workers: its share of the run, how often it happens, and at which line. Where a run is so short that samples hardly show
it, what the clock says of iterators that start workers, from when one is made to its first batch.

## Why it costs time
Without `persistent_workers` each `for batch in loader` forks or spawns its workers, and stops them at its end. A worker
that is spawned imports the script and torch again, which takes seconds; all of them start with an empty queue. In long
epochs this is negligible, in short ones it is most of the run. A validation loader does the same at each evaluation.
More workers than cores take longer to start, and all make their first batches at once, on the cores of the training.

## How to fix it
`DataLoader(..., persistent_workers=True)`: the workers live as long as the loader. Create the loader once, not in each
epoch. Where more workers than cores run, the finding says how many make batches as fast as the steps use them, by what
a worker needs for a batch without its waits for a core, and what the loop's thread needs for a step.

## When to leave it
Datasets that change between epochs in the main process: persistent workers continue with their own copy. Memory of
workers that grows with each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from advisor.api import Example, Finding, Fix, RankRecord, RunPart, Source, WatchedRun, duration

from ..shared._examples import STEPS_ON_CPU
from ..shared._fewer_workers import enough_workers
from ..shared._places import place, restarts_at
from ..shared._run_examples import run_of, sample
from ..shared._run_parts import MOST_PLACES, each_hour, finding_of, is_known, saving_of, watched
from ..shared._words import percent, plural


def check(
    run: WatchedRun,
    record: RankRecord,
    *,
    min_share: float = 0.05,  # one argument to add; below 5 % of the run it is within the variation between runs
    max_per_step: float = 0.5,  # restarts per step: an iterator that is created for each batch is another fault
) -> Iterator[Finding]:
    part = _part(run, min_share)
    if part is None or not 2 <= run.restarts <= max_per_step * run.steps:
        return
    where = _starting(part)
    loader = next(iter(record.loaders), None)
    enough = enough_workers(record, loader) if loader else None
    crowd = ""
    if loader and enough:
        crowd = (
            f" It has {plural(loader.num_workers or 0, 'worker')} on {plural(record.settings.cores or 0, 'core')}; "
            f"{enough} make batches as fast as the steps use them: a batch takes one {duration(loader.core_us or 0.0)}."
        )
    least, most, how = _ends(run, part)
    found = finding_of(
        run,
        part,
        f"Workers of a DataLoader are started {plural(run.restarts, 'time')}{_places(where)}, "
        f"{duration(part.us / run.restarts)} each: {percent(part.us / run.loop_us)} of {watched(run)} "
        f"({each_hour(part.us / run.loop_us)}).{crowd}",
        saving_of(run, part, least, most, how),
        _fix(loader.num_workers if loader else None, enough),
        "high",
    )
    yield replace(found, where=tuple(dict.fromkeys((*_made(record), *where))))


def _part(run: WatchedRun, min_share: float) -> RunPart | None:
    """The time of restarts: by samples, which see workers stop as well; by the clock where samples are too few."""
    part = run.loop.get("worker_restarts")
    if part is not None and is_known(part, run, min_share):
        return part
    timed_us = run.workers_us + run.first_batches_us
    if timed_us < min_share * run.loop_us or not run.loop_us:
        return None
    return RunPart("worker_restarts", timed_us, timed_us / run.loop_us, 0.0, run.restarts, part.lines if part else ())


def _ends(run: WatchedRun, part: RunPart) -> tuple[float, float, str]:
    """(least, most) shares of the part that are saved, and what they are.

    Steps in which workers start share the cores with them, and write to memory that a fork has shared: the clock knows
    how much longer they take.
    """
    if part is run.loop.get("worker_restarts"):
        return (
            run.started_us / part.us,
            1.0,
            "low: starting and stopping workers; high: plus the wait for a first batch",
        )
    how = "low: starting workers; high: plus the wait for their first batch"
    most = 1.0
    if _OF_LONG * run.restarts >= run.longer:
        most = max(run.beyond_us / part.us, 1.0)
        how += ", and what steps in which they start take beyond ordinary ones"
    return run.workers_us / part.us, most, how


# An epoch that ends and one that begins are two long steps; another of three may have another reason.
_OF_LONG = 3


def _starting(part: RunPart) -> tuple[Source, ...]:
    """The lines that ask for a new iterator, the costliest first; those of a tenth of the time and less are left out.

    An `if` around such a line says how often it runs, and starts nothing.
    """
    return tuple(dict.fromkeys(line.source for line in part.lines if line.us > part.us / 10))[:MOST_PLACES]


def _places(where: Sequence[Source]) -> str:
    """' at train.py:80', or ' at train.py:80 and train.py:92'."""
    named = [place(one).removeprefix(" at ") for one in where[:2]]
    return f" at {' and '.join(named)}" if named else ""


def _fix(workers: int | None, enough: int | None) -> Fix:
    title = f"Use {plural(enough, 'worker')}, and keep them" if enough else "Keep the workers"
    return Fix(
        f"{title} between epochs",
        "exact",
        f"DataLoader(dataset, num_workers={workers or 4})",
        f"DataLoader(dataset, num_workers={enough or workers or 4}, persistent_workers=True)",
    )


def _made(record: RankRecord) -> Iterator[Source]:
    """The lines that make loaders which do not keep their workers, for evaluations too: the argument belongs there."""
    for loader in (*record.loaders, *record.evaluation_loaders):
        if loader.num_workers and not loader.persistent_workers:
            yield from restarts_at(loader)


def _facts(restarts: int, wait_s: float, steps: int = 200) -> dict[str, Any]:
    """A run of steps in 20 s, and a wait for workers between epochs; half of it starts them."""
    return run_of(
        {"step": (20.0, steps), "between": (wait_s, restarts)},
        sample("step", 80, 90, "forward", hits=100),
        sample("between", 80, restarts, "workers", hits=100),
        sample("between", 80, restarts, "fetch", "first_batch", hits=100),
        restarts=restarts,
        epochs=restarts,
    )


def _crowd(core_us: float) -> dict[str, Any]:
    """16 workers on two cores, each of which needs so long for a batch; the loop needs 4 ms for a step."""
    return {
        "settings": {"cores": 2},
        "loaders": [{"num_workers": 16, "batch_size": 32, "core_us": core_us}],
        "vitals": {"timed_steps": 100, "timed_us": 6e5, "loop_cpu_us": 4e5},
    }


EXAMPLES = [
    Example(
        "workers for epochs of five steps",
        STEPS_ON_CPU,
        facts=_facts(40, 20.0),
        saves_us=(35_000, 110_000),
        says=("40 times at train.py:80", "50 %"),
        fixes=("persistent_workers=True",),
    ),
    Example(
        "far more workers than cores, whose batches are cheap",
        STEPS_ON_CPU,
        facts=_facts(40, 20.0) | _crowd(900.0),
        saves_us=(35_000, 110_000),
        says=("16 workers on 2 cores; 2 make batches as fast",),
        fixes=("Use 2 workers", "num_workers=2, persistent_workers=True"),
    ),
    Example(
        "as many whose batches wait for a disk: two would not keep up",
        STEPS_ON_CPU,
        facts=_facts(40, 20.0) | _crowd(40_000.0),
        saves_us=(35_000, 110_000),
        fixes=("num_workers=16, persistent_workers=True",),
    ),
    Example(
        "an evaluation in every other epoch, whose loader starts workers of its own",
        STEPS_ON_CPU,
        facts=run_of(
            {"step": (20.0, 200), "between": (20.0, 60)},
            sample("step", 80, 90, "forward", hits=100),
            sample("between", 80, 40, "workers", hits=100),
            sample("between", 92, 20, "workers", "untrained", hits=100, guard=90),
            restarts=60,
            epochs=40,
        )
        | {
            "loaders": [{"num_workers": 2, "batch_size": 32, "file": "train.py", "line": 60}],
            "evaluation_loaders": [{"num_workers": 2, "batch_size": 32, "file": "train.py", "line": 64}],
        },
        saves_us=(70_000, 110_000),
        says=("60 times at train.py:80 and train.py:92",),
    ),
    Example(
        "epochs of 15 steps that samples hardly saw: the clock knows how long workers took to start",
        STEPS_ON_CPU,
        facts=run_of(
            {"step": (4.9, 198), "long": (3.7, 33)},
            sample("step", 80, 2, "forward", hits=2),
            sample("long", 80, 1, "workers", hits=1),
            sample("long", 90, 3, "forward", "optimizer", hits=3),
            restarts=16,
            workers_us=8e5,
            first_batches_us=1e5,
            usual_us=8e5,
            epochs=15,
        ),
        saves_us=(3000, 13_000),
        says=("16 times at train.py:80",),
        fixes=("persistent_workers=True",),
    ),
    Example("long epochs", STEPS_ON_CPU, facts=_facts(3, 0.5), near_miss=True),
    Example("an iterator for each batch", STEPS_ON_CPU, facts=_facts(200, 20.0), near_miss=True),
    Example("no workers", STEPS_ON_CPU, facts=_facts(0, 0.0)),
]
