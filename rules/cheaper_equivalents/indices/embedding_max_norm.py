"""An embedding renormalizes the rows that it looks up, one by one.

## What it looks at
`aten::embedding_renorm_`, which `nn.Embedding(max_norm=...)` and `F.embedding(max_norm=...)` call before each look-up.

## Why it costs time
On a CPU it goes through the distinct rows of the batch in a loop, with a norm, a comparison and a product for each row:
some microseconds a row, whatever its length (`embedding_renorm_cpu_` in ATen/native/Embedding.cpp).

## How to fix it
Renormalize all rows at once, after the optimizer has changed them: `weight.renorm_(2, 0, max_norm)` under
`torch.no_grad()`. With sparse gradients, do it for the rows of the batch.

## When to leave it
Tables so large that a pass over all rows takes longer than the loop over those of a batch. Rows that no batch looks up
are renormalized as well, which changes them only if they exceed the norm: by their initialization, or by an optimizer
that changes rows without a gradient (momentum, weight decay).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import BACKWARD, Example, Finding, Fix, Lines, Price, Settings, dims_of, sizes

from ...shared._examples import op, two_steps
from ...shared._places import first_of, set_at
from ...shared._words import count, plural
from .._equivalent import Equivalent, whole, worth

CONFIRMED = ""

_RENORM = "aten::embedding_renorm_"
# What renormalizing a table moves, in passes over it: norms read it, the product reads and writes it.
_PASSES = 3
_BYTES = 4
_HOW = "low: minus three passes over the table at the memory rate of one core; high: minus one call"


def check(
    price: Price,
    lines: Lines | None,
    settings: Settings | None,
    *,
    min_share: float = 0.03,  # a line in the model and one in the loop: below 3 % the gain is within the noise of steps
) -> Iterator[Finding]:
    ops, events = price.ops, price.ops.events
    rows = ops.outermost_named(_RENORM)
    if price.on_device or not len(rows):
        return  # on a device one kernel does all rows
    tables = {sizes(dims_of(events, row), 0) for row in rows.tolist()}
    numbers = sum(int(np.prod(table)) for table in tables)
    calls = len(rows) / ops.steps.count
    moved_us = _PASSES * _BYTES * numbers / (1e3 * price.added.calibration.core_memory_gbs.low)
    least, most = price.added.calls_us("op_calls.single")
    one = Equivalent(
        parts=whole(rows),
        how=_HOW,
        claims=("forward", "other_ops"),
        instead_us=(len(tables) * least, len(tables) * most + moved_us),
    )
    if known := worth(price, lines, one, min_share):
        found = known.finding(
            f"{plural(round(calls, 1), 'look-up')} of embeddings a step{known.at} "
            f"{'renormalizes its' if calls == 1 else 'renormalize their'} rows one by one, in a table of "
            f"{count(max(table[0] for table in tables if table))} rows: {known.spent}.",
            {"calls": calls, "spent_us": known.spent_us},
            Fix(
                "Renormalize all rows at once after the update, without `max_norm`",
                "numerics",
                "embedding = nn.Embedding(rows, size, max_norm=1.0)",
                "embedding = nn.Embedding(rows, size)\n...\noptimizer.step()\n"
                "with torch.no_grad():\n    embedding.weight.renorm_(2, 0, 1.0)",
            ),
        )
        made = set_at(settings, "max_norm")
        yield replace(found, where=first_of(made, found.where))


_TABLE = [2000, 64]
_LOOP: dict[str, Any] = {"N": op("embedding_renorm_", _TABLE, [512]), "L": op("embedding", _TABLE, [512])}
_LANE = "[N         ][L][F    ][B     ]"

EXAMPLES = [
    Example(
        "rows of a table that are renormalized in each look-up",
        two_steps(_LANE, **_LOOP),
        saves_us=(700, 1300),
        says=("1 look-up", "2,000 rows"),
        fixes=("without `max_norm`",),
    ),
    Example(
        "a table of which one pass takes as long as the rows of the batch",
        two_steps(_LANE, **_LOOP | {"N": op("embedding_renorm_", [2_000_000, 64], [512])}),
        saves_us=(0, 1300),
    ),
    Example(
        "the same on a GPU, where one kernel does all rows",
        two_steps(
            _LANE,
            gpu=" [K        ]",
            **_LOOP | {"N": op("embedding_renorm_", _TABLE, [512], launches="kernel"), "B": BACKWARD},
        ),
        near_miss=True,
    ),
    Example("look-ups without a norm", two_steps("[L][F    ][B     ]", L=_LOOP["L"])),
]
