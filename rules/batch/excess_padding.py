"""Token batches are padded beyond their longest sample.

## What it looks at
Batches of token indices that are padded in the training process, and the length at which the model's embedding then
looks them up. Where the padding happens elsewhere (the dataset, a tokenizer, loader workers), `advisor run` reads the
indices that an embedding looks up in one step, and those of eight batches as the loader gives them: padding is a single
index value that fills the end, or the beginning, of every sample of a batch and occurs nowhere else in them. Padding up
to the longest sample of the batch is not counted: only what was added beyond it, in the mean of these batches.

## Why it costs time
A model computes every position of a batch, padding included. With a fixed length of 256 and samples of 60 tokens,
three quarters of the work is spent on positions whose results are discarded. For attention the share is higher,
because its work grows with the square of the sequence length.

## How to fix it
Pad each batch to its own longest sample: `pad_sequence(samples, batch_first=True)`, or `padding="longest"` in Hugging
Face tokenizers. Grouping samples of similar length into a batch (a bucketing sampler) saves more.

## When to leave it
Compiled models and CUDA graphs need fixed shapes: pad to a few lengths there (64, 128, 256) rather than to one. A
model that attends to padding, or normalizes over it, gives different results.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    BACKWARD,
    ELEMENTWISE,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    RankRecord,
    Settings,
    Source,
    constant,
    draw,
    duration,
)

from ..shared._places import place, set_at
from ..shared._words import count, percent
from ._padding import PaddedBatch, came_padded, on_positions_us, padded_here

CONFIRMED = "measured pair on a CPU: a small transformer, padded to 256 against padded to the longest sample"

# Least share of the work on padding that goes on a device.
_AT_LEAST = constant("device.padding_share").value


_AFTERWARDS = Fix(
    "Pad to the longest sample of each batch",
    "numerics",
    "tokens = pad_sequence(samples, batch_first=True)\ntokens = F.pad(tokens, (0, longest - tokens.shape[1]))",
    "tokens = pad_sequence(samples, batch_first=True)",
)
_AT_ONCE = Fix(
    "Pad to the longest sample of each batch",
    "numerics",
    "return ids + [0] * (max_length - len(ids))  # in the dataset",
    "return ids\n\ntokens = pad_sequence(samples, batch_first=True)  # in the loader's collate_fn",
)


def check(
    price: Price,
    lines: Lines,
    settings: Settings | None,
    record: RankRecord | None,
    *,
    min_share: float = 0.05,  # a few positions more, up to a multiple of 8, are padding that helps
) -> Iterator[Finding]:
    trace, steps, scale = price.ops.trace, price.ops.steps, price.scale
    batches = padded_here(trace, steps) or came_padded(trace, steps, record)
    if not batches or (settings is not None and settings.compiled):
        return
    seen = sum(batch.samples * batch.length for batch in batches)
    empty = 1 - sum(batch.samples * batch.longest for batch in batches) / seen
    claims = price.claims("forward", "backward")
    concerned_us, attention_us = price.measured_us(claims), _attention_us(price)
    least_us = _AT_LEAST * concerned_us
    if not price.on_device:
        least_us, seen_us = on_positions_us(price.ops, batches)
        # What is strided or merged has another length in its shapes; it is no more than what has this one.
        concerned_us = min(concerned_us, 2 * seen_us)
    # Attention shrinks with the square of the length: with it goes this much more.
    high_us = min(concerned_us * empty + attention_us * empty * (1 - empty), concerned_us)
    low_us = min(least_us * empty, high_us)
    if high_us < min_share * steps.step_us:
        return
    where = _where(lines, batches)
    longest, length = max(batch.longest for batch in batches), max(batch.length for batch in batches)
    yield Finding(
        message=(
            f"Batches whose longest sample has {count(longest)} tokens are padded to {count(length)}{place(where)}: "
            f"{percent(empty)} of the positions that the model computes are padding beyond the longest sample, in "
            f"{duration(scale.scaled(concerned_us))} of forward and backward pass per step."
        ),
        saving=scale.saving(
            low_us,
            high_us,
            "low: ops over all positions shrink in proportion, except for the fixed cost of a call; high: forward and "
            "backward pass shrink, attention with the square of the positions",
        ),
        where=(*(_made_at(record) if batches[0].came_padded else ()), *((where,) if where else ())),
        facts={"longest": longest, "length": length, "empty_share": empty, "batches": len(batches) / steps.count},
        fix=_AT_ONCE if batches[0].came_padded else _AFTERWARDS,
        claims=claims,
        at_most="high" if settings is not None else "medium",  # a compiled model may want one length
    )


def _attention_us(price: Price) -> float:
    """Time of fused attention, forward and backward, µs per step."""
    events = price.ops.events
    rows = price.ops.nesting.outermost & events.of(Category.CPU_OP) & price.ops.links.inside
    rows &= events.named("aten::scaled_dot_product", "evaluate_function: ScaledDotProduct")
    return price.spent_us(np.flatnonzero(rows))


def _made_at(record: RankRecord | None) -> tuple[Source, ...]:
    """The only line that asks for it where samples come padded; else the function that puts them together, or reads."""
    if said := set_at(record.settings if record else None, "padding"):
        return said
    loader = record.loaders[0] if record and record.loaders else None
    found = (loader.collate_from or loader.sample_from) if loader else None
    return (Source(*found, "function"),) if found and not found[0].startswith("<") else ()


def _where(lines: Lines, batches: list[PaddedBatch]) -> Source | None:
    return next((found for batch in batches if (found := lines.where_op(batch.row))), None)


def _padded(dims: list[list[int]], dtype: str = "long int") -> Ev:
    return Ev("aten::constant_pad_nd", dims=dims, dtypes=[dtype, "ScalarList", "Scalar"], launches="")


def _looked_up(length: int) -> Ev:
    return Ev("aten::embedding", dims=[[1000, 64], [8, length], [], [], []], launches="kernel")


_STEPS = """
    step   [1                         ][2                         ]
    cpu    [P ][E ][F    ][B         ]  [P ][E ][F    ][B         ]
    """
_PADDED_BEFORE = """
    step   [1                         ][2                         ]
    cpu        [E ][F    ][B         ]      [E ][F    ][B         ]
    """
_F = Ev("aten::linear", dims=[[8, 256, 64], [64, 64], [64]])

EXAMPLES = [
    Example(
        "64 tokens padded to 256",
        draw(_STEPS, us=100, P=_padded([[8, 64], [], []]), E=_looked_up(256), F=_F),
        saves_us=(750, 2100),
        says=("longest sample has 64 tokens are padded to 256", "75 %"),
    ),
    Example(
        "the same on a GPU",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [P ][E ][F    ][B         ]  [P ][E ][F    ][B         ]
            gpu 7       [K ][K    ][K        ]       [K ][K    ][K        ]
            """,
            us=100,
            P=_padded([[8, 64], [], []]),
            E=_looked_up(256),
            F=_F,
            B=Ev(BACKWARD.name, launches="kernel"),
            K=ELEMENTWISE,
        ),
        saves_us=(600, 1700),
    ),
    Example(
        "the data set pads 60 tokens to 256, as their indices tell",
        draw(_PADDED_BEFORE, us=100, E=_looked_up(256), F=_F),
        facts={"lookups": [{"samples": 8, "length": 256, "longest": 60}]},
        saves_us=(750, 1800),
        says=("longest sample has 60 tokens are padded to 256", "77 %"),
    ),
    Example(
        "another embedding of that shape shows that the batch is full",
        draw(_PADDED_BEFORE, us=100, E=_looked_up(256), F=_F),
        facts={
            "lookups": [{"samples": 8, "length": 256, "longest": 60}, {"samples": 8, "length": 256, "longest": 256}]
        },
        near_miss=True,
    ),
    Example(
        "batches of several lengths, most of them shorter than the one that was looked up",
        draw(_PADDED_BEFORE, us=100, E=_looked_up(256), F=_F),
        facts={
            "lookups": [{"samples": 8, "length": 256, "longest": 200}],
            "batch_lengths": [{"samples": 8, "length": 256, "longest": longest} for longest in (50, 60, 70, 20)],
        },
        saves_us=(650, 1800),
        says=("longest sample has 80 tokens",),
    ),
    Example(
        "batches as the loader gave them are full",
        draw(_PADDED_BEFORE, us=100, E=_looked_up(256), F=_F),
        facts={"batch_lengths": [{"samples": 8, "length": 256, "longest": 256}] * 8},
    ),
    Example(
        "every sample of 16 begins with the same mark",
        draw(_PADDED_BEFORE, us=100, E=_looked_up(16), F=Ev("aten::linear", dims=[[8, 16, 64], [64, 64], [64]])),
        facts={"lookups": [{"samples": 8, "length": 16, "longest": 15}]},
        near_miss=True,
    ),
    Example(
        "61 tokens padded to a multiple of 8",
        draw(_STEPS, us=100, P=_padded([[8, 61], [], []]), E=_looked_up(64), F=_F),
        near_miss=True,
    ),
    Example(
        "a decoder's inputs, moved by one place",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [S][P ][E ][F    ][B      ]  [S][P ][E ][F    ][B      ]
            """,
            us=100,
            S=Ev("aten::slice", dims=[[8, 16], [], [], [], []], dtypes=["long int"] + 4 * ["Scalar"]),
            P=_padded([[8, 15], [], []]),
            E=_looked_up(16),
            F=Ev("aten::linear", dims=[[8, 16, 64], [64, 64], [64]]),
        ),
        near_miss=True,
    ),
    Example(
        "pictures padded for a convolution",
        draw(_STEPS, us=100, P=_padded([[8, 64], [], []], "float"), E=_looked_up(256), F=_F),
        near_miss=True,
    ),
    Example(
        "one length for a compiled model",
        draw(_STEPS, us=100, P=_padded([[8, 64], [], []]), E=_looked_up(256), F=_F),
        facts={"settings": {"compiled": True}},
        near_miss=True,
    ),
    Example("as long as the longest", draw(_PADDED_BEFORE, us=100, E=_looked_up(64), F=_F)),
]
