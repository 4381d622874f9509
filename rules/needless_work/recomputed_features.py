"""Features of frozen layers are recomputed in every epoch.

## What it looks at
Layers of the forward pass that are not trained and whose input is the samples as the dataset returns them, if it
returns the same ones in each epoch, or rows of a tensor that is never written (`images[rows]`): a frozen backbone
below a new head, a teacher, a fixed encoder. `advisor run` observes in two separate steps which tensors ops read.
Counted are the ops that process each sample independently with tensors that are never written, up to the first op that
does more than that. The weights are checked again at each later epoch, or, if the script chooses rows itself, at
intervals that double each time. Random numbers end the chain, wherever they are drawn: in the dataset, by an
augmentation of a batch, by dropout, in Python; so do normalizations that update running statistics. Whether loader
workers draw random numbers is not known, so samples that they load are not reported, and neither are batches whose
shape differs in each step.

## Why it costs time
The result for a sample is the same in each epoch, bit for bit. Nine of ten epochs compute it unnecessarily, and load
images that are larger than their features.

## How to fix it
Run the frozen part once over the dataset, under `torch.no_grad()`, and train the rest on its results: a
`TensorDataset` of features, or files of them if memory is short.

## When to leave it
Where the layers will be trained later, or the samples augmented. Where the features of all samples fit neither into
memory nor on a fast disk: the finding says how large they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    Example,
    Features,
    Finding,
    Fix,
    Ints,
    Lines,
    Loader,
    LoaderFacts,
    ObservedOps,
    Price,
    RankRecord,
    Reused,
    Saving,
    constant,
    data_size,
    draw,
    less_by,
)

from ..shared._examples import node, op
from ..shared._places import place
from ..shared._words import count, each_step
from ._same_result import reuse

CONFIRMED = "measured pair on a CPU: a frozen backbone that runs in each of ten epochs against once"

# Passes over the data set from which on there is an epoch that need not compute; the last batch may have been dropped.
_PASSES = 1.5
_LAYERS = 2
# Least rate at which kept features are read and put into a batch.
_BYTES_PER_US = 1e3 * constant("loader.features_gbs").value
# Of the profiled steps those that have to run these ops: the others may be of another kind, such as an epoch's last.
_MOST_STEPS = 0.9


def check(
    price: Price,
    observed: ObservedOps,
    record: RankRecord,
    facts: LoaderFacts | None,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # a pass over the dataset and another loader: not worth it below 5 % of the step
) -> Iterator[Finding]:
    seen = observed.seen.features
    if seen is None or not (seen.frozen or seen.begun):
        return
    passes, samples = _asked_for(record, seen, facts.loader if facts else None)
    rows = _rows(observed, seen.ops)
    # A first layer alone, which makes more of a sample than there was, is the begin of a network that is not frozen.
    begin = seen.layers < _LAYERS and seen.kept_bytes > seen.read_bytes > 0
    if passes < _PASSES or begin or not len(rows):
        return
    work = reuse(price, _known(observed, rows), lines, rows, rows[:0])
    if len(work.nodes):
        return  # a backward pass goes through them: those gradients are another rule's
    fewer_us = 0.0 if price.on_device else _fetched_us(record) * _smaller(seen.kept_bytes, seen.read_bytes)
    more_us = max(seen.kept_bytes - seen.read_bytes, 0) * seen.samples / _BYTES_PER_US
    work = replace(work, saving=_over_all_epochs(price, work.saving, passes, more_us, fewer_us))
    if not work.is_material(price, min_share) or not work.saving.low_us:
        return
    yield Finding(
        message=(
            f"Frozen layers compute features of the same {count(samples)} samples {count(round(passes))} "
            f"times{place(next(iter(work.where), None))}: {each_step(price, work.us)}. Stored, the features take "
            f"{data_size(samples * seen.kept_bytes)}."
        ),
        saving=work.saving,
        where=work.where,
        facts={
            "features_us": work.us,
            "passes": passes,
            "kept_bytes": samples * seen.kept_bytes,
            "ops": len(rows) / price.ops.steps.count,
        },
        fix=_ONCE,
        claims=(*work.claims, "input") if fewer_us else work.claims,
        # Until an epoch began with the same weights, that they are never trained is what the script asked for alone.
        at_most="high" if seen.begun else "medium",
    )


_ONCE = Fix(
    "Compute the features once, before the epochs",
    "exact",
    "for images, labels in loader:\n    with torch.no_grad():\n        features = backbone(images)\n"
    "    loss = criterion(head(features), labels)",
    "backbone.eval()\nwith torch.no_grad():\n    features = torch.cat([backbone(part) for part in images.split(256)])\n"
    "loader = DataLoader(TensorDataset(features, labels), batch_size=32, shuffle=True)\n"
    "for features, labels in loader:\n    loss = criterion(head(features), labels)",
)


def _asked_for(record: RankRecord, seen: Features, loader: Loader | None) -> tuple[float, int]:
    """(how often each sample was asked for so far, how many there are); zeros where it is not the same each time.

    Of a tensor's rows none is written, and whichever are chosen, each comes that often on the average; a tensor that is
    filled later, such as a replay buffer, would have been seen at a look. A loader has to give single samples of a set
    of known size, read without a random number; of steps and iterators the smaller number counts.
    """
    given = record.steps.count * seen.samples
    if seen.chosen_of:
        return (given / seen.chosen_of, seen.chosen_of) if seen.begun else (0.0, 0)
    if loader is None or loader.iterable is not False or loader.random_samples is not False or not loader.dataset_size:
        return 0.0, 0
    if len(record.loaders) != 1 or loader.batch_size != seen.samples:
        return 0.0, 0
    return min(float(loader.iterators or 0), given * record.world_size / loader.dataset_size), loader.dataset_size


def _known(observed: ObservedOps, rows: Ints) -> Reused:
    """These rows as what is constant, and nothing else."""
    nothing = rows[:0]
    return Reused(observed.rows, nothing, nothing, nothing.astype(bool), rows, observed.share)


def _rows(observed: ObservedOps, ops: list[int]) -> Ints:
    """These ops in the profiled steps; none where some of the steps went without."""
    chosen = np.asarray(ops, np.int64)
    whole = [at[chosen] for at in observed.places if len(at) and (at[chosen] >= 0).all()]
    if not whole or len(whole) < _MOST_STEPS * len(observed.places):
        return np.empty(0, np.int64)
    found: Ints = np.sort(np.concatenate(whole))
    return found


def _fetched_us(record: RankRecord) -> float:
    """Time of a fetch in the steps that were timed without the profiler; 0 where it is not known."""
    times = record.steps.unprofiled_parts_us.get("fetch", [])
    return float(np.median(times)) if times else 0.0


def _smaller(kept: int, read: int) -> float:
    """By which share a sample is smaller as features."""
    return max(1 - kept / read, 0.0) if read else 0.0


def _over_all_epochs(price: Price, each: Saving, passes: float, more_us: float, fewer_us: float) -> Saving:
    """What a step saves where one of all passes still computes.

    more_us, fewer_us: what reading features takes more than reading samples does, and less; at most, each.
    """
    how = "low: the features are computed in one epoch, and read at 1 GB/s if they are larger than the samples; "
    how += "high: without that epoch, and with less time to fetch a smaller sample"
    low = less_by(replace(each, low_us=each.low_us * (1 - 1 / passes)), (0.0, more_us)).low_us
    return price.of_us(low, each.high_us + fewer_us, how, basis=each.basis)


_STEPS = """
    step   [1                               ][2                               ]
    cpu    [C        ][R ][C      ][H ][B   ] [C        ][R ][C      ][H ][B   ]
    """


_OPS: dict[str, Any] = {"C": op("conv2d"), "R": op("relu"), "H": op("linear", number=1), "B": node(1, launches=None)}
_LOADER: dict[str, Any] = {
    "batch_size": 32,
    "dataset_size": 640,
    "iterable": False,
    "random_samples": False,
    "iterators": 10,
}
_SEEN: dict[str, Any] = {
    "ops": [0, 1, 2],
    "samples": 32,
    "kept_bytes": 400,
    "read_bytes": 400,
    "layers": 2,
    "frozen": True,
}


def _facts(loader: dict[str, Any] | None = None, number: int = 200, **seen: Any) -> dict[str, Any]:
    names = ["aten::conv2d", "aten::relu", "aten::linear"]
    features = {**_SEEN, "begun": 9} | seen
    reused = {"names": names, "ops": [0, 1, 0, 2], "waits": [[], [1], [1], [1]], "features": features}
    return {"reused": reused, "loaders": [_LOADER | (loader or {})], "steps": {"count": number, "source": "loader"}}


def _nothing(title: str, facts: dict[str, Any]) -> Example:
    return Example(title, draw(_STEPS, us=100, **_OPS), facts=facts, near_miss=True)


EXAMPLES = [
    Example(
        "a frozen backbone in each of ten epochs",
        draw(_STEPS, us=100, **_OPS),
        facts=_facts(),
        saves_us=(1800, 2700),
        says=("same 640 samples 10 times", "256 kB"),
    ),
    Example(
        "the same in two epochs",
        draw(_STEPS, us=100, **_OPS),
        facts=_facts({"iterators": 2}, 40),
        saves_us=(1000, 2700),
        says=("2 times",),
    ),
    Example(
        "the same beside a GPU",
        draw(
            """
            step   [1                               ][2                               ]
            cpu    [C        ][R ][C      ][H ][B   ] [C        ][R ][C      ][H ][B   ]
            gpu 7   [K        ][K ][K      ][K ][K ]   [K        ][K ][K      ][K ][K ]
            """,
            us=100,
            **{name: replace(one, launches="kernel") for name, one in _OPS.items()},
        ),
        facts=_facts(),
        saves_us=(1500, 2700),
    ),
    Example(
        "rows of a tensor of 640 images, chosen without a loader",
        draw(_STEPS, us=100, **_OPS),
        facts=_facts(chosen_of=640) | {"loaders": []},
        saves_us=(1800, 2700),
        says=("same 640 samples 10 times", "256 kB"),
    ),
    _nothing("rows of a tensor, and nobody looked whether it is filled later", _facts(chosen_of=640, begun=0)),
    _nothing("rows of a tensor that is larger than all batches so far", _facts(chosen_of=6400)),
    _nothing("one epoch", _facts({"iterators": 1}, 20)),
    _nothing("samples are augmented", _facts({"random_samples": True})),
    _nothing("a stream of samples", _facts({"iterable": True, "dataset_size": None})),
    _nothing("whether samples are augmented is not known", _facts({"random_samples": None})),
    _nothing("the weights may be trained, and no later epoch was seen", _facts(frozen=False, begun=0)),
    _nothing("one layer, before a normalisation that learns statistics", _facts(ops=[0], layers=1, kept_bytes=4000)),
    _nothing("features so large that reading them takes as long", _facts(kept_bytes=400_000)),
    Example(
        "nothing is frozen",
        draw(_STEPS, us=100, **_OPS),
        facts={"reused": {"names": ["aten::conv2d"], "ops": [0], "waits": [[]]}, "loaders": [_LOADER]},
        skipped="ran different ops",
    ),
    Example("nobody looked", draw(_STEPS, us=100, **_OPS), facts={}, skipped="was not recorded"),
]
