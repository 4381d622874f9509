"""Evaluation spends more time on its data than in the model.

## What it looks at
Runs in which evaluation takes a tenth of the time or more: stack samples of it in the DataLoader's `__next__`, in hooks
in which Lightning makes loaders, and in the model. Where the data takes more than half, the line where most of that
passes is named.

## Why it costs time
Validation data is usually the same each time. Without workers, each evaluation reads, decodes and transforms all of it
again, and the model waits meanwhile. `num_workers` of the training's loader does not apply to that of the evaluation.

## How to fix it
Prepare the samples once and keep them, if they fit into memory. Otherwise, give the evaluation's loader workers of its
own, with `persistent_workers=True`. In Lightning, leave `reload_dataloaders_every_n_epochs` at 0 unless the data
changes.

## When to leave it
Samples that are drawn at random for each evaluation. On a CPU, workers need cores that the model leaves free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import Example, Finding, Fix, Loader, RankRecord, WatchedRun

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import first_of, place, set_at
from ..shared._run_examples import TRAINS, run_of, sample
from ..shared._run_parts import MOST_PLACES, finding_of, is_known, lines_of, narrowed, saving_of, watched
from ..shared._words import percent
from ._evaluation_loaders import KEPT_LOADERS, MIN_SHARE, SEEN, place_of


def check(
    run: WatchedRun,
    record: RankRecord,
    *,
    min_share: float = MIN_SHARE,  # of the loop, for the data: half of less is within the noise between runs
    min_part: float = 0.5,  # of evaluation: where the model takes more, the data is not what it waits for most
) -> Iterator[Finding]:
    part = run.loop.get("evaluation")
    inputs = [one for one in run.evaluated if one.work == "input"]
    if part is None or not part.times or part.times < 2 or sum(one.hits for one in inputs) < SEEN:
        return
    mine = narrowed(part, sum(one.us for one in inputs))
    if mine.us < min_part * part.us or not is_known(mine, run, min_share):
        return
    most = max(inputs, key=lambda one: one.us).source
    loader = record.evaluation_loaders[0] if len(record.evaluation_loaders) == 1 else None
    reloads = set_at(record.settings, "reloaded_loaders")
    made = place_of(loader) if loader else None
    fix = KEPT_LOADERS if reloads else _fix(loader, record)
    where = (*reloads, *([made] if made and fix is _WORKERS else []), most)
    yield finding_of(
        run,
        part,
        f"Evaluation takes {percent(part.us / run.loop_us)} of {watched(run)}, and {percent(mine.us / part.us)} of "
        f"that goes to its data, most of it{place(most)}{_alone(loader)}.",
        saving_of(
            run,
            mine,
            0.0,
            1 - 1 / part.times,
            "at most: the time that evaluations after the first one wait for their data; what remains of it depends "
            "on the size of the prepared samples, and with workers on free cores",
        ),
        fix,
        "medium",
        first_of(where, lines_of(part))[:MOST_PLACES],
    )


def _alone(loader: Loader | None) -> str:
    return " (`num_workers=0`)" if loader and loader.num_workers == 0 else ""


def _fix(loader: Loader | None, record: RankRecord) -> Fix:
    """Workers only where they do not take the cores of a model that runs on the CPU."""
    on_device = record.settings.model_device not in (None, "cpu")
    return _WORKERS if on_device and loader and loader.num_workers == 0 else _KEEP_SAMPLES


_KEEP_SAMPLES = Fix(
    "Prepare the validation samples once",
    "exact",
    "val_set = Photos(val_files)",
    "photos = Photos(val_files)\n"
    "val_set = [photos[i] for i in range(len(photos))]  # if they fit into memory, and are the same each time",
)
_WORKERS = Fix(
    "Give the evaluation's DataLoader workers",
    "exact",
    "val_loader = DataLoader(val_set, batch_size=64)",
    "val_loader = DataLoader(val_set, batch_size=64, num_workers=4, persistent_workers=True)",
)


def _facts(forward: int, *fetch: str, hits: int = 140, times: int = 30, **more: Any) -> dict[str, Any]:
    """Evaluations of 40 s in a run of 100 s; of their samples `hits` in a loader, marked so."""
    every = [
        sample("between", 88, times, "forward", "untrained", hits=forward, inner=["train.py", 41, "evaluate"]),
        sample("between", 88, times, *fetch, hits=hits, inner=["train.py", 20, "__getitem__"]),
    ]
    seen = [one for one in every if one["hits"]]
    return run_of({"step": (60.0, 600), "between": (40.0, times)}, TRAINS, *seen, epochs=times) | more


_FETCH = ("fetch", "untrained")
_ALONE: dict[str, Any] = {
    "evaluation_loaders": [{"batch_size": 64, "num_workers": 0, "file": "train.py", "line": 60, "function": "main"}]
}

EXAMPLES = [
    Example(
        "pictures that each evaluation decodes again",
        STEPS_ON_CPU,
        facts=_facts(40, *_FETCH, **_ALONE),
        saves_us=(0, 60_000),
        says=("40 %", "78 % of that goes to its data", "train.py:20", "num_workers=0"),
        fixes=("once",),
    ),
    Example(
        "the same for a model on a GPU",
        STEPS_ON_CPU,
        facts=_facts(40, *_FETCH, **_ALONE, settings={"model_device": "cuda:0"}),
        saves_us=(0, 60_000),
        says=("train.py:20",),
        fixes=("DataLoader workers",),
    ),
    Example(
        "Lightning makes the loaders again for each evaluation",
        STEPS_ON_CPU,
        facts=_facts(
            40, *("loaders", "evaluate"), settings={"set_at": {"reloaded_loaders": {"file": "train.py", "line": 70}}}
        ),
        saves_us=(0, 60_000),
        says=("train.py:20",),
        fixes=("Keep the loaders",),
    ),
    Example("forward passes are most of it", STEPS_ON_CPU, None, _facts(140, *_FETCH, hits=40)),
    Example("a metric is most of it", STEPS_ON_CPU, None, _facts(40, hits=140), near_miss=True),
    Example("four samples", STEPS_ON_CPU, None, _facts(1, *_FETCH, hits=4), near_miss=True),
    Example("one evaluation", STEPS_ON_CPU, None, _facts(40, *_FETCH, times=1), near_miss=True),
    Example("a bare trace", STEPS_ON_CPU, skipped="was not captured"),
]
