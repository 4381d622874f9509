"""Evaluation processes far smaller batches than training.

## What it looks at
Runs in which evaluation takes a tenth of the time or more and reads a DataLoader with a batch size of an eighth of that
of training, or less: often 1, its default. In loops without one, stack samples of a model in evaluation mode: the
first tensor that it is given, compared with what the same model is given in training, where their sizes differ in the
number of samples alone, and by the loop's text no call needs what an earlier one returned.

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

import math
from collections.abc import Iterator
from statistics import fmean

from msgspec.structs import replace

from advisor.api import EvaluationCalls, Example, Finding, Fix, RankRecord, RunPart, Saving, WatchedRun

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import batch_size_at, first_of, place
from ..shared._run_parts import MOST_PLACES, finding_of, is_known, lines_of, narrowed, saving_of, watched
from ..shared._words import percent, plural
from ._evaluation_calls import facts_of_calls
from ._evaluation_loaders import MIN_SHARE, place_of, run_facts, trained_batch

# A batch of an eighth: from there on most of what a sample costs is the fixed cost of a batch where that is large.
_SMALL = 8
_HOW = (
    "low: the model's part of the evaluation, less what training takes for as many batches beside its backward pass "
    "and its optimizer; high: a large batch takes no longer than a small one"
)


def check(
    run: WatchedRun,
    record: RankRecord,
    calls: EvaluationCalls,
    *,
    min_share: float = MIN_SHARE,  # of the loop, for evaluation: half of less is within the noise between runs
) -> Iterator[Finding]:
    part, trained = run.loop.get("evaluation"), trained_batch(record)
    if part is None or not is_known(part, run, min_share):
        return
    small = [
        one for one in record.evaluation_loaders if one.batch_size and trained and _SMALL * one.batch_size <= trained
    ]
    if not small:
        yield from _of_calls(run, part, calls, min_share)
        return
    where = place_of(small[0])
    saving = _saving(run, part, record, trained or 0) if len(record.evaluation_loaders) == 1 else None
    unknown = "" if saving else " What larger batches save was not measured."
    yield finding_of(
        run,
        part,
        f"Evaluation takes {percent(part.us / run.loop_us)} of {watched(run)} and reads "
        f"{plural(small[0].batch_size or 1, 'sample')} at a time from the DataLoader{place(where)}; training reads "
        f"{trained}.{unknown}",
        saving,
        Fix(
            f"Evaluate in batches of {trained}",
            "numerics",
            "val_loader = DataLoader(val_set)",
            f"val_loader = DataLoader(val_set, batch_size={trained})",
        ),
        "medium",
        first_of(batch_size_at(small[0]), lines_of(part)),
    )


def _saving(run: WatchedRun, part: RunPart, record: RankRecord, trained: int) -> Saving | None:
    """What batches as large as those of training save; None where it is not known how many samples are evaluated.

    A batch of training takes the forward pass, with more beside it, in the rest of its step; no larger batch is
    quicker than a small one.
    """
    loader, rest_us = record.evaluation_loaders[0], record.steps.unprofiled_parts_us.get("rest")
    each, size = loader.batch_size, loader.dataset_size
    if not (part.times and each and size and rest_us) or record.settings.model_device not in (None, "cpu"):
        return None
    forward_us = sum(one.us for one in run.evaluated if one.work == "forward")
    then_us = part.times * math.ceil(size / trained) * fmean(rest_us)
    least = max(min(forward_us, part.us) - then_us, 0.0) / part.us
    most = 1 - math.ceil(size / trained) / math.ceil(size / each)
    return replace(saving_of(run, part, least, most, _HOW), basis="modelled")


def _of_calls(run: WatchedRun, part: RunPart, calls: EvaluationCalls, min_share: float) -> Iterator[Finding]:
    for one in calls.calls:
        each, trained = one.samples, one.trained
        if not (each and trained and one.apart and _SMALL * each <= trained):
            continue
        mine = narrowed(part, one.us)
        if not is_known(mine, run, min_share):
            continue
        found = finding_of(
            run,
            mine,
            f"Evaluation calls the model{place(one.source)} with {plural(each, 'sample')} at a time, and training with "
            f"{trained}: these calls take {percent(mine.us / run.loop_us)} of {watched(run)}. What larger batches save "
            "was not measured.",
            None,
            Fix(
                f"Evaluate in batches of {trained}",
                "numerics",
                "for x, y in zip(inputs, targets):\n    outputs.append(model(x[None]))",
                f"for x, y in zip(inputs.split({trained}), targets.split({trained})):\n    outputs.append(model(x))",
            ),
            "medium",
        )
        where = (one.source, *((one.loop,) if one.loop else ()), *lines_of(part))
        yield replace(found, where=tuple(dict.fromkeys(where))[:MOST_PLACES])
        return


EXAMPLES = [
    Example(
        "one sample at a time, a third of the run",
        STEPS_ON_CPU,
        saves_us="unknown",
        facts=run_facts(30.0, {"batch_size": 1}),
        says=("1 sample at a time", "train.py:60", "33 %"),
        fixes=("batches of 32",),
    ),
    Example(
        "the same, of 640 samples, where training takes 20 ms for a batch beside its backward pass",
        STEPS_ON_CPU,
        saves_us=(38_000, 49_000),
        facts=run_facts(30.0, {"batch_size": 1, "dataset_size": 640})
        | {"steps": {"unprofiled_parts_us": {"fetch": [1e3], "backward": [5e4], "optimizer": [2e3], "rest": [2e4]}}},
        says=("1 sample at a time", "training reads 32."),
    ),
    Example(
        "samples that the model takes as long for in large batches: nothing is certain",
        STEPS_ON_CPU,
        saves_us=(0, 49_000),
        facts=run_facts(30.0, {"batch_size": 1, "dataset_size": 640})
        | {"steps": {"unprofiled_parts_us": {"rest": [2e5]}}},
    ),
    Example(
        "a loop without a DataLoader that calls the model with one sample",
        STEPS_ON_CPU,
        saves_us="unknown",
        facts=facts_of_calls(40.0, size=(1, 64)),
        says=("at train.py:44 with 1 sample at a time", "training with 32", "40 %"),
        fixes=("batches of 32",),
    ),
    Example(
        "a sample without the dimension of a batch",
        STEPS_ON_CPU,
        saves_us="unknown",
        facts=facts_of_calls(40.0, size=(64,)),
        says=("with 1 sample at a time",),
    ),
    Example("the same batches as in training", STEPS_ON_CPU, None, facts_of_calls(40.0)),
    Example(
        "each call needs what the last one returned, as in a game",
        STEPS_ON_CPU,
        None,
        facts_of_calls(40.0, size=(1, 64), apart=False),
        near_miss=True,
    ),
    Example(
        "samples of another size than in training",
        STEPS_ON_CPU,
        None,
        facts_of_calls(40.0, size=(1, 96)),
        near_miss=True,
    ),
    Example("half of the batch of training", STEPS_ON_CPU, None, run_facts(30.0, {"batch_size": 16}), near_miss=True),
    Example("a twentieth of the run", STEPS_ON_CPU, None, run_facts(3.0, {"batch_size": 1}), near_miss=True),
    Example("a bare trace", STEPS_ON_CPU, skipped="was not captured"),
]
