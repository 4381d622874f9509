"""Many small embedding tables are looked up one by one.

## What it looks at
Lookups in eight or more embedding tables in a row, of equal width and for equally many indices, each with its own
gradient: one table per categorical column. On a CPU only tables that together take at most 2 MB are considered. On a
device tables of any size are: what counts is how long it waits for their launches, and what their kernels, with those
of the backward pass, take only because there are so many.

## Why it costs time
Each lookup is a module call, an op, a node of the backward pass and a parameter for the optimizer. For a few hundred
rows of a few numbers, that overhead is most of its time. On a device each takes up to a dozen kernels (a gradient needs
zeros, a sort of the indices and sums), which are over before the host has launched the next.

## How to fix it
Use one table with all rows, in which the rows of each column follow those of the previous one:
`self.table(categories + self.first)` with `first = sizes.cumsum(0) - sizes`.

## When to leave it
Large tables on a CPU: the gradient of a dense table is as large as the table, and one large gradient is slower than
many that fit into a cache. Tables of different widths, unless they are merged by width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from advisor.api import (
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    constant,
    duration,
)

from ...shared._places import first_line, place
from ...shared._words import count, each_step
from .._equivalent import Equivalent, worth
from ._look_ups import MOST_BYTES, LookUps, bytes_of, runs_of_look_ups
from ._tables_on_device import FEWEST, KERNELS, ONE_BY_ONE, WORTH, TablesOnDevice, drawn_tables

CONFIRMED = "measured pair on a CPU: thirty categorical columns with an embedding each against one for all"

# What one call for all tables takes of the calls of each.
_STAYS = constant("share.joined_tables").range
_HOW = (
    "the least and the most that one lookup in a joint table saved for five sets of tables on a CPU; high: plus the "
    "time that updating and clearing one table takes less than these"
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
    min_tables: int = FEWEST,  # merging fewer saves less than the change is worth
    min_share: float = WORTH,  # a model's tables to merge: not worth it below 3 % of the step
) -> Iterator[Finding]:
    if price.on_device:
        if tables := TablesOnDevice.of(price, min_tables, min_share):
            yield from _on_device(price, lines, tables)
        return
    events, steps = price.ops.events, price.ops.steps
    rows = [one for one in runs_of_look_ups(price.ops) if len(one) >= min_tables]
    found = [one for one in rows if bytes_of(events, one) <= MOST_BYTES]
    work = LookUps.of(price.ops, found)
    if work is None or work.stores < min_tables * len(found):
        return
    kept = len(found) / sum(map(len, found))
    one = Equivalent(
        parts=((work.spans, 1 - _STAYS[1], 1 - _STAYS[0]),),
        how=_HOW,
        claims=("forward", "backward", "optimizer", "other_ops", "host"),
        also_us=price.fewer_parameters_us(work.of_parameters, kept),
        moves_as_much=True,
        shown=found[0],
    )
    if known := worth(price, lines, one, min_share):
        per_step = _in_each_step(found, steps.count)
        yield known.finding(
            f"{count(per_step)} embedding tables are looked up one by one in each step{known.at}: "
            f"{known.words[0]} ({known.words[1]}), backward pass included.",
            {"look_ups": per_step, "calls_us": known.spent_us},
            _FIX,
        )


def _in_each_step(found: Sequence[Ints], steps: int) -> float:
    """Look-ups of a typical step. In some a pause of the process may have cut a row of them in two short ones."""
    return float(np.median([len(one) for one in found])) * max(round(len(found) / steps), 1)


def _on_device(price: Price, lines: Lines | None, tables: TablesOnDevice) -> Iterator[Finding]:
    """Of the launches of so many look-ups, and of what goes back through them, those of one remain."""
    if not tables.told:
        return
    per_step = _in_each_step(tables.found, price.ops.steps.count)
    where = first_line(lines, tables.found[0])
    waited_us, kernels_us = price.breakdown.us_in("idle_launch", tables.work.spans), tables.kernels_us
    yield Finding(
        message=(
            f"{count(per_step)} embedding tables are looked up one by one in each step{place(where)}: with the "
            f"backward pass the GPU spends {each_step(price, kernels_us)} on their kernels, and waits "
            f"{duration(price.scale.scaled(waited_us))} for launches of the host meanwhile."
        ),
        saving=tables.saving,
        where=(where,) if where else (),
        facts={"look_ups": per_step, "waited_us": waited_us, "kernels_us": kernels_us},
        fix=_FIX,
        claims=tables.listed.claims,
        at_most="medium",  # launches that are spared may only move the wait
    )


EXAMPLES = [
    Example(
        "eight columns, each with a small table of its own",
        drawn_tables(),
        saves_us=(3000, 6600),
        says=("8 embedding tables are looked up one by one",),
    ),
    Example(
        "the same beside a device that waits for their launches",
        ONE_BY_ONE,
        saves_us=(0, 7300),
        says=("8 embedding tables are looked up one by one", "the GPU spends 94.3 µs of each step", "and waits"),
        fixes=("Merge the tables into one",),
    ),
    Example(
        "large tables beside a device: a joint one has as many rows",
        drawn_tables(rows=100_000, gpu=KERNELS),
        saves_us=(0, 7300),
    ),
    Example(
        "kernels that take as long as their launches: work, which one for all tables has as well",
        drawn_tables(gpu=f" {8 * '[Q]'}[X{' ' * 40}]{8 * '[Q   ]'}", fill=1.0),
        None,
        near_miss=True,
    ),
    Example("beside a device that has enough to do", drawn_tables(gpu=f" [X{' ' * 81}]"), near_miss=True),
    Example("one table for all columns", drawn_tables(tables=1), None),
    Example("three columns", drawn_tables(tables=3), None, near_miss=True),
    Example("tables of two widths in turns", drawn_tables(other=16), None, near_miss=True),
    Example("eight large tables", drawn_tables(rows=100_000), None, near_miss=True),
]
