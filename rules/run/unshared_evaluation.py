"""Every rank evaluates the whole validation set.

## What it looks at
Runs of several ranks in which evaluation takes a tenth of the time or more, and reads a DataLoader whose sampler goes
through a whole dataset in each rank: no `DistributedSampler`, and none of a framework that divides samples between
ranks.

## Why it costs time
With N ranks the same samples are evaluated N times. Divided between the ranks, each evaluates one N-th of them.

## How to fix it
Give the loader a `DistributedSampler(dataset, shuffle=False)`, sum numerators and counts of the metrics on each rank,
and combine them with one `all_reduce`. The sampler repeats a few samples where they do not divide evenly; a metric that
must be exact leaves these out.

## When to leave it
Metrics that need all outputs at once and cannot be summed. Ranks that evaluate different data without a sampler that
says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from advisor.api import Example, Finding, Fix, Loader, RankRecord, WatchedRun

from ..shared._batches import WHOLE
from ..shared._examples import STEPS_ON_CPU
from ..shared._places import place
from ..shared._run_parts import each_hour, finding_of, is_known, lines_of, saving_of, watched
from ..shared._words import count, percent
from ._evaluation_loaders import MIN_SHARE, place_of, run_facts


def check(
    run: WatchedRun,
    record: RankRecord,
    *,
    min_share: float = MIN_SHARE,  # of the loop, for evaluation: half of less is within the noise between runs
) -> Iterator[Finding]:
    part, ranks = run.loop.get("evaluation"), record.world_size or 1
    loader = next((one for one in record.evaluation_loaders if _is_whole(one)), None)
    if ranks < 2 or loader is None or part is None or not is_known(part, run, min_share):
        return
    least, most = _saved(loader, ranks), 1 - 1 / ranks
    where = place_of(loader)
    yield finding_of(
        run,
        part,
        f"Each of {count(ranks)} ranks evaluates all {count(loader.dataset_size or 0)} samples of the DataLoader"
        f"{place(where)}: evaluation takes {percent(part.us / run.loop_us)} of {watched(run)}. Divided between the "
        f"ranks, it would save {percent(most * part.us / run.loop_us)} of the run, "
        f"{each_hour(most * part.us / run.loop_us)}.",
        saving_of(run, part, least, most, "low: in whole batches of each rank; high: one share of N"),
        _DIVIDED,
        "medium",  # whether a metric can be summed is the user's to say
        ((where,) if where else ()) + lines_of(part),
    )


def _is_whole(loader: Loader) -> bool:
    """Whether a rank reads all of a dataset that is not known to be a part."""
    return loader.sampler in WHOLE and bool(loader.dataset_size) and loader.dataset != "Subset"


def _saved(loader: Loader, ranks: int) -> float:
    """Share of the batches that a rank no longer evaluates."""
    size, samples = loader.batch_size or 1, loader.dataset_size or 1
    return 1 - math.ceil(math.ceil(samples / ranks) / size) / math.ceil(samples / size)


_DIVIDED = Fix(
    "Divide the validation set between the ranks",
    "numerics",
    "val_loader = DataLoader(val_set, batch_size)",
    "val_loader = DataLoader(val_set, batch_size, sampler=DistributedSampler(val_set, shuffle=False))",
)
_VALIDATION = {"sampler": "SequentialSampler", "dataset": "Flowers", "dataset_size": 1000}

EXAMPLES = [
    Example(
        "two ranks, a third of the run",
        STEPS_ON_CPU,
        facts=run_facts(30.0, _VALIDATION, ranks=2),
        saves_us=(20_000, 27_000),
        says=("Each of 2 ranks evaluates all 1,000 samples", "train.py:60", "33 %"),
    ),
    Example("one process", STEPS_ON_CPU, None, run_facts(30.0, _VALIDATION)),
    Example(
        "samples are divided between ranks",
        STEPS_ON_CPU,
        facts=run_facts(30.0, _VALIDATION | {"sampler": "DistributedSampler"}, ranks=2),
        near_miss=True,
    ),
    Example(
        "each rank has a part of its own",
        STEPS_ON_CPU,
        facts=run_facts(30.0, _VALIDATION | {"dataset": "Subset"}, ranks=2),
        near_miss=True,
    ),
    Example(
        "evaluation takes a twentieth of the run",
        STEPS_ON_CPU,
        facts=run_facts(3.0, _VALIDATION, ranks=2),
        near_miss=True,
    ),
    Example("a bare trace", STEPS_ON_CPU, skipped="was not captured"),
]
