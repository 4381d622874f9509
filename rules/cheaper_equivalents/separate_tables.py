"""Many small embedding tables are looked up one by one.

## What it looks at
Lookups in eight or more embedding tables in a row, of equal width and for equally many indices, each with a gradient
of its own: one table per categorical column. Only tables that together take no more than 2 MB; and only without an
accelerator, where small kernels are reported by the rule launch-bound.

## Why it costs time
Each lookup is a module call, an op, a node of the backward pass and a parameter for the optimizer. For a few
hundred rows of a few numbers, that overhead is most of its time.

## How to fix it
Use one table with all rows, in which the rows of each column follow those of the previous one:
`self.table(categories + self.first)` with `first = sizes.cumsum(0) - sizes`.

## When to leave it
Large tables: the gradient of a dense table is as large as the table, and one large gradient is slower than many that
fit into a cache. Tables of different widths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import Category, Drawing, Ev, Example, Finding, Fix, Lines, Price, backward_passes, constant

from ..shared._words import count
from ._equivalent import Equivalent, worth
from ._examples import node, op, two_steps
from ._look_ups import MOST_BYTES, LookUps, bytes_of, runs_of_look_ups

CONFIRMED = "measured pair on a CPU: thirty categorical columns with an embedding each against one for all"

# What one call for all tables takes of the calls of each.
_STAYS = constant("share.joined_tables").range
_HOW = (
    "the least and the most that one lookup in a joint table saved for five sets of tables on a CPU; high: plus the "
    "optimizer's time for these tables"
)
_FIX = Fix(
    "Merge the tables into one `nn.Embedding` with an offset per column",
    "numerics",
    "embedded = [table(columns[:, i]) for i, table in enumerate(self.tables)]\nx = torch.cat(embedded, 1)",
    "# self.table = nn.Embedding(sum(sizes), width); self.first = cumsum of sizes, minus sizes\n"
    "x = self.table(columns + self.first).flatten(1)",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_tables: int = 8,  # of fewer, one table saves less than it costs to write
    min_share: float = 0.03,  # a model's tables to merge: not worth it below 3 % of the step
) -> Iterator[Finding]:
    if price.on_device:
        return
    events, steps = price.ops.events, price.ops.steps
    rows = [one for one in runs_of_look_ups(price.ops) if len(one) >= min_tables]
    found = [one for one in rows if bytes_of(events, one) <= MOST_BYTES]
    work = LookUps.of(price.ops, found)
    if work is None or work.stores < min_tables * len(found):
        return
    updates = events.named(backward_passes.UPDATES) & events.of(Category.ANNOTATION)
    one = Equivalent(
        parts=((work.spans, 1 - _STAYS[1], 1 - _STAYS[0]),),
        how=_HOW,
        claims=("forward", "backward", "optimizer", "other_ops", "host"),
        also_us=price.scale.scaled(price.ops.us(np.flatnonzero(updates)) * work.of_parameters),
        shown=found[0],
    )
    if known := worth(price, lines, one, min_share):
        per_step = sum(map(len, found)) / steps.count
        yield known.finding(
            f"{count(per_step)} embedding tables are looked up one by one in each step{known.at}: "
            f"{known.words[0]} ({known.words[1]}), backward pass included.",
            {"look_ups": per_step, "calls_us": known.spent_us},
            _FIX,
        )


def _drawn(*, tables: int = 8, rows: int = 50, width: int = 8, other: int = 8) -> Drawing:
    """Look-ups, a layer (A), and their nodes, each with a gradient that is stored (S). other: every second width."""
    names = "CDEGHIJK"[:tables]
    lane = "".join(f"[{name}]" for name in names) + "[A ][Z ]"
    lane += "".join(f"[{name.lower()}][S]" for name in reversed(names)) + "[O ]"
    ops: dict[str, Any] = {"A": op("linear"), "Z": node(99), "S": Ev(backward_passes.STORES)}
    for at, name in enumerate(names):
        ops[name] = op("embedding", [rows, other if at % 2 else width], [256], number=at + 1)
        ops[name.lower()] = node(at + 1, "EmbeddingBackward0")
    return two_steps(lane, **ops)


EXAMPLES = [
    Example(
        "eight columns, each with a small table of its own",
        _drawn(),
        saves_us=(3000, 6600),
        says=("8 embedding tables are looked up one by one",),
    ),
    Example("one table for all columns", _drawn(tables=1), None),
    Example("three columns", _drawn(tables=3), None, near_miss=True),
    Example("tables of two widths in turns", _drawn(other=16), None, near_miss=True),
    Example("eight large tables", _drawn(rows=100_000), None, near_miss=True),
]
