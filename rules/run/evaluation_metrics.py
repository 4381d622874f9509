"""Evaluation spends more time on its metrics than in the model.

## What it looks at
Runs of one rank on a CPU in which evaluation takes a tenth of the time or more: stack samples of it in the model's
forward passes, in the loader, in what Transformers' Trainer and Accelerate do to keep the outputs of all batches, and
in functions of the script. Where forward passes are the smaller part, what takes most of the rest is named.

## Why it costs time
Logits over a vocabulary are thousands of numbers for each token. An evaluation that keeps them copies all of them
several times (gather, pad, concatenate, convert to NumPy), before a metric reads the largest of each. A metric in
Python looks at samples one at a time, what the model does for a batch at once.

## How to fix it
Keep what the metric needs: `preprocess_logits_for_metrics` of Transformers' Trainer, `argmax` before
`gather_for_metrics`, sums for each batch in a loop of one's own.

## When to leave it
Metrics that need all scores, such as the area under a curve, and those whose work is searching, such as an edit
distance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from advisor.api import Evaluated, Example, Finding, Fix, RankRecord, Source, WatchedRun

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import first_of, place, set_at
from ..shared._run_examples import TRAINS, run_of, sample
from ..shared._run_parts import MOST_PLACES, finding_of, is_known, lines_of, narrowed, watched
from ..shared._words import percent
from ._evaluation_loaders import MIN_SHARE, SEEN

_MOST = 0.5


def check(
    run: WatchedRun,
    record: RankRecord,
    *,
    min_share: float = MIN_SHARE,  # of the loop, for the work that is named: half of less is within the noise
) -> Iterator[Finding]:
    part = run.loop.get("evaluation")
    # A line that waits for a device, or for another rank, waits for the forward passes there.
    if part is None or record.settings.model_device not in (None, "cpu") or (record.world_size or 1) > 1:
        return
    forward_us = sum(one.us for one in run.evaluated if one.work == "forward")
    rest_us = part.us - forward_us
    most = max(_works(run), key=_us, default=())
    # Without a module that runs, the model is what the script computes by itself.
    if not most or not 0 < forward_us < rest_us or not any(one.marked for one in run.evaluated):
        return
    mine = narrowed(part, _us(most))
    if mine.us < _MOST * rest_us or sum(one.hits for one in most) < SEEN or not is_known(mine, run, min_share):
        return
    kept = most[0].work == "outputs"
    where = (*(set_at(record.settings, "compute_metrics") if kept else ()), most[0].source)
    doing = (
        "keeps the outputs of all batches for the metrics (gather, pad, concatenate, convert)"
        if kept
        else f"is {_named(most[0].source)}"
    )
    yield finding_of(
        run,
        part,
        f"Evaluation takes {percent(part.us / run.loop_us)} of {watched(run)}, and {percent(forward_us / part.us)} of "
        f"that is in the model: {percent(mine.us / part.us)} {doing}{place(where[0])}. What less of it saves was not "
        "measured.",
        None,
        _fix(record) if kept else _BY_BATCH,
        "medium",
        first_of(where, lines_of(part))[:MOST_PLACES],
    )


def _works(run: WatchedRun) -> list[tuple[Evaluated, ...]]:
    """What is not the model's: outputs that are kept, and functions of metrics, or lines of one that calls the model.

    The costliest line of each is first.
    """
    calls = {_function(one.source) for one in run.evaluated if one.work == "forward"}
    models = {one.source for one in run.evaluated if one.work == "forward"}
    found: dict[object, list[Evaluated]] = defaultdict(list)
    for one in run.evaluated:
        if one.work == "outputs":
            found["outputs"].append(one)
        elif one.work == "metric" and one.source not in models:
            function = _function(one.source)
            found[one.source if function in calls else function].append(one)
    return [tuple(one) for one in found.values()]


def _function(source: Source) -> tuple[str, str | None]:
    return (source.file, source.function)


def _us(work: tuple[Evaluated, ...]) -> float:
    return sum(one.us for one in work)


def _named(source: Source) -> str:
    """The function of a line; a module's own text has none."""
    name = source.function or ""
    return f"`{name}`" if name.isidentifier() else "one line"


def _fix(record: RankRecord) -> Fix:
    return _OF_TRAINER if record.settings.framework == "transformers" else _OF_GATHER


_OF_TRAINER = Fix(
    "Reduce the logits of each batch with `preprocess_logits_for_metrics`",
    "exact",
    "Trainer(..., compute_metrics=accuracy)",
    "def most_likely(logits, labels):\n    return logits.argmax(dim=-1)\n\n"
    "Trainer(..., compute_metrics=accuracy, preprocess_logits_for_metrics=most_likely)",
)
_OF_GATHER = Fix(
    "Gather predictions, not logits",
    "exact",
    "logits, labels = accelerator.gather_for_metrics((logits, labels))",
    "guesses, labels = accelerator.gather_for_metrics((logits.argmax(dim=-1), labels))",
)
_BY_BATCH = Fix(
    "Sum what the metric needs over the batches, as tensors",
    "numerics",
    "outputs.append(model(x))\n...\nscore = metric(torch.cat(outputs).tolist(), targets)",
    "pairs += torch.bincount(model(x).argmax(1) * classes + y, minlength=classes**2)\n...\nscore = metric(pairs)",
)


def _facts(forward: int, outputs: int = 0, metric: int = 0, fetch: int = 0, **more: Any) -> dict[str, Any]:
    """Evaluations of 40 s in a run of 100 s, with so many samples of each kind of work."""
    loop = ["train.py", 41, "evaluate"]
    every = [
        sample("between", 88, 30, "forward", "untrained", hits=forward, inner=loop),
        sample("between", 88, 30, "evaluate", "outputs", hits=outputs),
        sample("between", 88, 30, hits=metric, inner=["train.py", 33, "macro_f1"]),
        sample("between", 88, 30, "fetch", "untrained", hits=fetch, inner=["train.py", 20, "__getitem__"]),
    ]
    seen = [one for one in every if one["hits"]]
    return run_of({"step": (60.0, 600), "between": (40.0, 30)}, TRAINS, *seen, epochs=2) | more


_TRAINER = {"framework": "transformers", "set_at": {"compute_metrics": {"file": "train.py", "line": 70}}}

EXAMPLES = [
    Example(
        "a Trainer that keeps all logits",
        STEPS_ON_CPU,
        saves_us="unknown",
        facts=_facts(20, outputs=160, settings=_TRAINER),
        says=("40 %", "11 % of that is in the model", "89 % keeps the outputs of all batches", "train.py:70"),
        fixes=("preprocess_logits_for_metrics",),
    ),
    Example(
        "a loop of one's own that gathers logits",
        STEPS_ON_CPU,
        saves_us="unknown",
        facts=_facts(20, outputs=160),
        says=("keeps the outputs of all batches", "train.py:88"),
        fixes=("not logits",),
    ),
    Example(
        "a metric in Python",
        STEPS_ON_CPU,
        saves_us="unknown",
        facts=_facts(40, metric=120, fetch=20),
        says=("is `macro_f1` at train.py:33", "67 %"),
    ),
    Example("forward passes are most of it", STEPS_ON_CPU, None, _facts(120, outputs=40, metric=20)),
    Example("the loader is what takes the time", STEPS_ON_CPU, None, _facts(20, metric=20, fetch=140), near_miss=True),
    Example("a model without modules", STEPS_ON_CPU, None, _facts(0, metric=160, fetch=20), near_miss=True),
    Example("three samples", STEPS_ON_CPU, None, _facts(1, outputs=3), near_miss=True),
    Example(
        "a device that the line may wait for",
        STEPS_ON_CPU,
        None,
        _facts(20, metric=160, settings={"model_device": "cuda:0"}),
        near_miss=True,
    ),
    Example(
        "ranks that may wait for each other where they gather",
        STEPS_ON_CPU,
        None,
        _facts(20, outputs=160, world_size=2),
        near_miss=True,
    ),
    Example("a bare trace", STEPS_ON_CPU, skipped="was not captured"),
]
