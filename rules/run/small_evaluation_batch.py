"""Evaluation processes far smaller batches than training.

## What it looks at
Runs in which evaluation takes a tenth of the time or more and reads a DataLoader with a batch size of an eighth of that
of training, or less: often 1, its default.

## Why it costs time
Evaluation keeps no activations for a backward pass, so it has room for larger batches than training. With one sample at
a time, the fixed cost of each operator and of each batch of the DataLoader is paid for every sample.

## How to fix it
Set `batch_size` of the evaluation's DataLoader to that of training or above. Texts of different lengths need padding:
generate and score with an attention mask.

## When to leave it
Samples of different sizes that cannot be padded, such as full images in segmentation; a latency test.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import Example, Finding, Fix, RankRecord, WatchedRun

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import place
from ..shared._words import percent, plural
from ._evaluation_loaders import MIN_SHARE, place_of, run_facts, trained_batch
from ._run_parts import finding_of, is_known, watched

# A batch of an eighth: from there on most of what a sample costs is the fixed cost of a batch where that is large.
_SMALL = 8


def check(
    run: WatchedRun,
    record: RankRecord,
    *,
    min_share: float = MIN_SHARE,  # of the loop, for evaluation: half of less is within the noise between runs
) -> Iterator[Finding]:
    part, trained = run.loop.get("evaluation"), trained_batch(record)
    small = [
        one for one in record.evaluation_loaders if one.batch_size and trained and _SMALL * one.batch_size <= trained
    ]
    if not small or part is None or not is_known(part, run, min_share):
        return
    where = place_of(small[0])
    yield finding_of(
        run,
        part,
        f"Evaluation takes {percent(part.us / run.loop_us)} of {watched(run)} and reads "
        f"{plural(small[0].batch_size or 1, 'sample')} at a time from the DataLoader{place(where)}; training reads "
        f"{trained}. What larger batches save was not measured.",
        None,
        Fix(
            f"Evaluate in batches of {trained}",
            "numerics",
            "val_loader = DataLoader(val_set)",
            f"val_loader = DataLoader(val_set, batch_size={trained})",
        ),
        "medium",
        (where,) if where else (),
    )


EXAMPLES = [
    Example(
        "one sample at a time, a third of the run",
        STEPS_ON_CPU,
        saves_us="unknown",
        facts=run_facts(30.0, {"batch_size": 1}),
        says=("1 sample at a time", "train.py:60", "33 %"),
        fixes=("batches of 32",),
    ),
    Example("half of the batch of training", STEPS_ON_CPU, None, run_facts(30.0, {"batch_size": 16}), near_miss=True),
    Example("a twentieth of the run", STEPS_ON_CPU, None, run_facts(3.0, {"batch_size": 1}), near_miss=True),
    Example("a bare trace", STEPS_ON_CPU, saves_us=None, skipped="was not captured"),
]
