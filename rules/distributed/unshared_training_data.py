"""Every rank trains on the whole dataset.

## What it looks at
The DataLoader of each rank, in runs of several ranks that `advisor run` watched: its sampler goes through all of a
dataset (torch's own sampler with or without `shuffle=True`, no `DistributedSampler`), and the datasets of all ranks
hold the same, by a digest of what each keeps in memory. Datasets that read their samples from nothing in memory are
not compared. Only ranks that DistributedDataParallel or FullyShardedDataParallel average gradients for: those of tensor
or pipeline parallelism read the same batch on purpose.

## Why it costs time
With N ranks each sample is computed N times in an epoch, which has N times as many steps as it needs. Without a seed
for each rank all of them may even draw the same batches in the same order: then N - 1 ranks add nothing to the
gradient.

## How to fix it
`DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset))`, without `shuffle=True`, and
`sampler.set_epoch(epoch)` at the start of each epoch. Each rank then gets one N-th of the samples. Lightning,
accelerate and the Hugging Face Trainer put one in by themselves.

## When to leave it
Where training is counted in steps instead of epochs, and each rank shuffles with a seed of its own: then an epoch is
only a name, and no step is saved. Small datasets that are seen many times in random order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from advisor.api import GLOO, Drawing, Example, Finding, Fix, Loader, RankFacts, Ranks, draw

from ..shared._places import made_at, place
from ..shared._words import count, percent

_DIVIDED = Fix(
    "Divide the dataset between the ranks with `DistributedSampler`",
    "semantics",
    "loader = DataLoader(dataset, batch_size, shuffle=True)",
    "sampler = DistributedSampler(dataset)\nloader = DataLoader(dataset, batch_size, sampler=sampler)\n"
    "for epoch in range(epochs):\n    sampler.set_epoch(epoch)",
)


# Dimensions of a mesh whose ranks get samples of their own, and what other groups of such ranks are for.
_DATA = ("data", "sharded", "buffers")
# A script that is seen to begin a second epoch counts in epochs.
_EPOCHS = 2


def check(
    ranks: Ranks,
    *,
    min_steps: int = 10,  # of an epoch: of fewer, rounding to whole batches leaves little to say
) -> Iterator[Finding]:
    loaders = [_loader(one) for one in ranks.facts]
    first = loaders[0]
    if first is None or any(one is None or one.whole_dataset != first.whole_dataset for one in loaders):
        return
    samples, size = first.dataset_size or 0, first.batch_size or 1
    steps, needed = math.ceil(samples / size), math.ceil(math.ceil(samples / ranks.world_size) / size)
    if steps < min_steps:
        return
    share = 1 - needed / steps
    where = made_at(first)
    yield Finding(
        message=(
            f"Each of {count(ranks.world_size)} ranks trains on all {count(samples)} samples of the DataLoader"
            f"{place(where[0] if where else None)}: an epoch takes {count(steps)} steps, where {count(needed)} do if "
            f"the samples are divided ({percent(share)} less)."
        ),
        saving=ranks.scale.saving(
            share * ranks.step_us if (first.iterators or 0) >= _EPOCHS else 0.0,
            share * ranks.step_us,
            "steps of an epoch that divided data leaves out; low: nothing, where no second epoch was seen to "
            "begin, as such a run may count steps",
        ),
        where=where,
        facts={"samples": samples, "steps": steps, "steps_needed": needed},
        fix=_DIVIDED,
        at_most="medium",  # fewer updates in an epoch: another training, unless the epochs are counted in samples
    )


def _loader(rank: RankFacts) -> Loader | None:
    """The loader of a data-parallel rank that goes through all of a dataset whose digest is known."""
    record = rank.record
    if record is None or len(record.loaders) != 1 or any(place.kind not in _DATA for place in rank.mesh):
        return None
    averages = record.settings.ddp is not None or record.settings.fsdp is not None
    found = record.loaders[0]
    return found if averages and found.whole_dataset and found.batch_size else None


def _drawn() -> Drawing:
    return draw(
        "step   [1                ][2                ]\n"
        "cpu    [F  ][B  ]         [F  ][B  ]\n"
        "cpu 2           [G     ]           [G     ]",
        us=1000,
        world_size=2,
        G=GLOO,
    )


def _facts(digest: str, iterators: int = 3, wraps: bool = True) -> dict[str, Any]:
    loader = {"batch_size": 32, "dataset_size": 6400, "iterators": iterators, "sampler": "RandomSampler"}
    made = {"file": "train.py", "line": 40, "function": "main", "whole_dataset": digest}
    settings = {"ddp": {"kind": "DDP"} if wraps else None}
    steps = {"source": "loader", "count": 20}
    return {"world_size": 2, "steps": steps, "settings": settings, "loaders": [loader | made]}


def _both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {"trace": _drawn(), "facts": first, "others": (_drawn(),), "other_facts": (second,)}


EXAMPLES = [
    Example(
        "two ranks shuffle the same dataset",
        saves_us=(7000, 11_000),
        says=("Each of 2 ranks trains on all 6,400 samples", "200 steps, where 100 do", "train.py:40"),
        **_both(_facts("5e1f"), _facts("5e1f")),
    ),
    Example(
        "the same, and only one pass through the data was seen",
        saves_us=(0, 11_000),
        **_both(_facts("5e1f", iterators=1), _facts("5e1f", iterators=1)),
    ),
    Example("each rank holds its own shard", near_miss=True, **_both(_facts("5e1f"), _facts("90aa"))),
    Example(
        "ranks that share a model, and read the same batch on purpose",
        near_miss=True,
        **_both(_facts("5e1f", wraps=False), _facts("5e1f", wraps=False)),
    ),
    Example("a DistributedSampler", **_both(_facts(""), _facts(""))),
]
