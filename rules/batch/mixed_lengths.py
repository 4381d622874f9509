"""Batches mix short and long samples.

## What it looks at
The lengths of the samples in eight batches, which `advisor run` reads after the profiled window, from a tensor of
lengths in the batch or from a mask. Each batch is padded to its longest sample. The same samples are put into batches
sorted by length, and the numbers of positions are compared.

## Why it costs time
A model computes every position of a batch, padding included. Where one long sample is batched with short ones, most of
the batch is padding, and its results are discarded.

## How to fix it
Batch samples of similar length: shuffle, take pools of many batches, sort each pool by length, split it into batches,
and shuffle those. Or limit the positions of a batch instead of its samples. Most libraries have samplers for this
(`group_by_length` in Hugging Face's `TrainingArguments`, bucket samplers in speech toolkits).

## When to leave it
Which samples share a batch changes the training a little: batch statistics and gradient noise. Losses that compare the
samples of a batch with each other may need random batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from advisor.api import (
    BACKWARD,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Price,
    RankRecord,
    SampleLengths,
    Settings,
    Source,
    constant,
    draw,
    duration,
)

from ..shared._places import first_of, made_at, set_at
from ..shared._words import count, percent
from ._padding import numbers

# What an op takes whatever its size, recorded.
_CALL_US = constant("calls.recorded_op_us").value
# Batches that tell something of how lengths are mixed.
_FEWEST = 4


def check(
    price: Price,
    settings: Settings | None,
    record: RankRecord,
    *,
    min_share: float = 0.1,  # of the step: batches are composed differently, so the gain has to be worth it
) -> Iterator[Finding]:
    batches = [one for one in record.sample_lengths if len(one.lengths) > 1]
    if len(batches) < _FEWEST or (settings is not None and settings.compiled):
        return
    now, then, filled = _positions(batches)
    goes, empty = 1 - then / now, 1 - filled / now
    claims = price.claims("forward", "backward")
    concerned_us = price.measured_us(claims)
    least_us = min(_on_positions_us(price), concerned_us)
    if goes * concerned_us < min_share * price.ops.steps.step_us:
        return
    where = first_of(set_at(settings, "random_batches"), _made_at(record))
    # A package that builds on the trainer, as sentence-transformers does, chooses the batches itself.
    by_trainer = {(one.made_by, one.made_in or "transformers") for one in record.loaders} == {("transformers",) * 2}
    yield Finding(
        message=(
            f"{percent(empty)} of the positions of a batch are padding: in {count(len(batches))} batches of "
            f"{count(len(batches[0].lengths))} samples, lengths range from {count(min(_all(batches)))} to "
            f"{count(max(_all(batches)))}. Sorted by length, the same samples take {percent(goes)} fewer positions; "
            f"forward and backward pass take {duration(price.scale.scaled(concerned_us))} per step."
        ),
        saving=price.scale.saving(
            goes * least_us,
            empty * concerned_us,
            "low: ops on tensors whose size changes from step to step shrink as these batches do when they are sorted, "
            "except for the fixed cost of a call; high: all of forward and backward pass shrinks, and no padding is "
            "left, which larger pools come close to",
        ),
        where=where,
        facts={"empty_share": empty, "goes_share": goes, "batches": len(batches)},
        fix=_OF_TRAINER if by_trainer else _SORTED,
        claims=claims,
        at_most="high" if settings is not None else "medium",  # a compiled model may want one length
    )


_SORTED = Fix(
    "Batch samples of similar length",
    "semantics",
    "loader = DataLoader(data, batch_size=16, shuffle=True, collate_fn=pad)",
    "batches = []  # made in every epoch\n"
    "for pool in torch.randperm(len(data)).split(50 * 16):\n"
    "    rows = sorted(pool.tolist(), key=lengths.__getitem__)\n"
    "    batches += [rows[at : at + 16] for at in range(0, len(rows), 16)]\n"
    "random.shuffle(batches)\n"
    "loader = DataLoader(data, batch_sampler=batches, collate_fn=pad)",
)
# transformers/training_args.py since version 5; `group_by_length` before.
_OF_TRAINER = Fix(
    'Set `train_sampling_strategy="group_by_length"`',
    "semantics",
    "TrainingArguments(...)",
    'TrainingArguments(..., train_sampling_strategy="group_by_length")  # before version 5: group_by_length=True',
)


def _all(batches: Sequence[SampleLengths]) -> list[int]:
    return [length for one in batches for length in one.lengths]


def _positions(batches: Sequence[SampleLengths]) -> tuple[int, int, int]:
    """Positions of these batches as they are, of the same samples sorted by length, and of the samples themselves."""
    now = sum(len(one.lengths) * one.length for one in batches)
    ordered = sorted(_all(batches))
    size = max(len(one.lengths) for one in batches)
    parts = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    then = sum(len(part) * part[-1] for part in parts)
    return now, min(then, now), sum(ordered)


def _on_positions_us(price: Price) -> float:
    """Time of ops whose shapes hold a size that is no size of all steps, µs per step beyond what a call takes."""
    ops = price.ops
    events, steps = ops.events, ops.steps
    rows = np.flatnonzero(events.of(Category.CPU_OP) & ops.links.inside & (events.dims >= 0))
    step = steps.step_of(events.start_ns[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    sizes = {at: set(numbers(events.dims_table[at])) for at in np.unique(events.dims[rows]).tolist()}
    of_step: dict[int, set[int]] = {}
    for at, number in {*zip(events.dims[rows].tolist(), step.tolist(), strict=True)}:
        of_step.setdefault(number, set()).update(sizes[at])
    common = set.intersection(*of_step.values()) if of_step else set()
    changes = np.array([bool(sizes[at] - common) for at in events.dims[rows].tolist()], bool)
    own_us = ops.nesting.self_ns[rows[changes]] / 1e3
    return steps.per_step_us(float((own_us - _CALL_US).clip(0).sum()) * 1e3)


def _made_at(record: RankRecord) -> Iterator[Source]:
    """Where the loader was made, then the script's sampler that chooses what meets in a batch."""
    loader = record.loaders[0] if record.loaders else None
    yield from made_at(loader)
    if loader is not None and loader.sampler_file and not loader.made_in:
        yield from (Source(loader.sampler_file, at[0], "__iter__", "function") for at in loader.sampler_lines[:1])


def _drawn(first: int, second: int) -> Drawing:
    """Two steps of 16 samples, filled up to these lengths."""
    text = """
        step [1                 ][2                 ]
        cpu  [F     ][B        ] [G     ][H        ]
        """
    forward, backward = (Ev(name, dims=[[16, first, 80], [80, 80]]) for name in ("aten::linear", BACKWARD.name))
    other: dict[str, Any] = {"G": Ev("aten::linear", dims=[[16, second, 80], [80, 80]])}
    other["H"] = Ev(BACKWARD.name, dims=[[16, second, 80], [80, 80]])
    return draw(text, us=500, F=forward, B=backward, **other)


def _lengths(*batches: list[int]) -> dict[str, object]:
    """What capture reads of these batches, which a loader of the script's makes."""
    known = [{"length": max(one), "lengths": one} for one in batches]
    return {"sample_lengths": known, "loaders": [{"file": "train.py", "line": 94, "function": "main"}]}


# One long sample in each batch: 4 · 4 · 100 positions, of which sorted 4 · (10 + 10 + 10 + 100) stay.
_MIXED = _lengths(*[[10, 10, 10, 100]] * 4)

EXAMPLES = [
    Example(
        "a long sample in each batch",
        _drawn(100, 97),
        facts=_MIXED,
        # Of the step of 10 ms 9.5 are forward and backward pass; 67.5 % of the positions go.
        saves_us=(6_000, 6_500),
        says=("68 % of the positions of a batch are padding", "take 68 % fewer"),
    ),
    Example(
        "the same in a loader of Transformers' Trainer",
        _drawn(100, 97),
        facts=_MIXED | {"loaders": [{"made_by": "transformers"}]},
        saves_us=(6_000, 6_500),
        fixes=("group_by_length",),
    ),
    Example(
        "the same in a loader of a package that builds on that trainer, and has samplers of its own",
        _drawn(100, 97),
        facts=_MIXED | {"loaders": [{"made_by": "transformers", "made_in": "sentence_transformers"}]},
        saves_us=(6_000, 6_500),
        fixes=("batch_sampler=batches",),
    ),
    Example(
        "batches of similar lengths",
        _drawn(100, 97),
        facts=_lengths([9, 10, 10, 10], [10, 10, 10, 11], [10, 10, 11, 11], [98, 99, 100, 100]),
    ),
    Example(
        "two batches tell little", _drawn(100, 97), facts=_lengths([10, 10, 10, 100], [10, 10, 10, 100]), near_miss=True
    ),
    Example("lengths that differ little", _drawn(100, 97), facts=_lengths(*[[95, 97, 99, 100]] * 4), near_miss=True),
]
