"""Many small embedding tables are looked up one by one.

## What it looks at
Lookups in eight or more embedding tables in a row, of equal width and for equally many indices, each with its own
gradient: one table per categorical column. Only tables that together take at most 2 MB are considered. With a device,
only the time counts for which it waits for their launches.

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
from msgspec.structs import replace

from advisor.api import GEMM, GRADIENT_STORE, Drawing, Ev, Example, Finding, Fix, Ints, Lines, Price, constant

from ...shared._device_waits import waiting_us
from ...shared._examples import node, op, two_steps
from ...shared._places import first_line, place
from ...shared._words import count, each_step
from .._equivalent import Equivalent, worth
from ._look_ups import MOST_BYTES, LookUps, bytes_of, runs_of_look_ups

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
    min_tables: int = 8,  # merging fewer saves less than the change is worth
    min_share: float = 0.03,  # a model's tables to merge: not worth it below 3 % of the step
) -> Iterator[Finding]:
    events, steps = price.ops.events, price.ops.steps
    rows = [one for one in runs_of_look_ups(price.ops) if len(one) >= min_tables]
    found = [one for one in rows if bytes_of(events, one) <= MOST_BYTES]
    work = LookUps.of(price.ops, found)
    if work is None or work.stores < min_tables * len(found):
        return
    if price.on_device:
        yield from _on_device(price, lines, found, work, min_share)
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


def _in_each_step(found: list[Ints], steps: int) -> float:
    """Look-ups of a typical step. In some a pause of the process may have cut a row of them in two short ones."""
    return float(np.median([len(one) for one in found])) * max(round(len(found) / steps), 1)


def _on_device(
    price: Price, lines: Lines | None, found: list[Ints], work: LookUps, min_share: float
) -> Iterator[Finding]:
    """Of the launches of so many look-ups, and of what goes back through them, those of one remain."""
    per_step = _in_each_step(found, price.ops.steps.count)
    waited_us = waiting_us(price, work.spans)
    goes = 1 - len(found) / sum(map(len, found))
    how = "low: nothing, if something else delays the device as long; high: it waits for one lookup instead"
    saving = price.scale.saving(0.0, goes * waited_us, how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    where = first_line(lines, found[0])
    yield Finding(
        message=(
            f"{count(per_step)} embedding tables are looked up one by one in each step{place(where)}, and the GPU "
            f"waits for them and their backward pass {each_step(price, waited_us)}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"look_ups": per_step, "waited_us": waited_us},
        fix=_FIX,
        at_most="medium",  # launches that are spared may only move the wait
    )


def _drawn(*, tables: int = 8, rows: int = 50, width: int = 8, other: int = 8, gpu: str = "") -> Drawing:
    """Look-ups, a layer (A), and their nodes, each with a gradient that is stored (S). other: every second width.

    gpu: what a device does in a step, as long a lane as the host's.
    """
    names = "CDEGHIJK"[:tables]
    lane = "".join(f"[{name}]" for name in names) + "[A ][Z ]"
    lane += "".join(f"[{name.lower()}][S]" for name in reversed(names)) + "[O ]"
    ops: dict[str, Any] = {"A": op("linear"), "Z": node(99), "S": Ev(GRADIENT_STORE)}
    for at, name in enumerate(names):
        ops[name] = op("embedding", [rows, other if at % 2 else width], [256], number=at + 1)
        ops[name.lower()] = node(at + 1, "EmbeddingBackward0")
    if gpu:
        # What is drawn, the first look-up launches or the layer: whichever it lies behind.
        launching = "C" if gpu.startswith(" [") else "A"
        ops = {name: one if name == launching else replace(one, launches="") for name, one in ops.items()}
        ops["X"] = GEMM
    return two_steps(lane, gpu=gpu, **ops)


EXAMPLES = [
    Example(
        "eight columns, each with a small table of its own",
        _drawn(),
        saves_us=(3000, 6600),
        says=("8 embedding tables are looked up one by one",),
    ),
    Example(
        "the same beside a device that waits for their launches",
        _drawn(gpu="                        [X    ]"),
        saves_us=(0, 6600),
        says=("8 embedding tables are looked up one by one", "the GPU waits"),
    ),
    Example("beside a device that has enough to do", _drawn(gpu=f" [X{' ' * 81}]"), near_miss=True),
    Example("one table for all columns", _drawn(tables=1), None),
    Example("three columns", _drawn(tables=3), None, near_miss=True),
    Example("tables of two widths in turns", _drawn(other=16), None, near_miss=True),
    Example("eight large tables", _drawn(rows=100_000), None, near_miss=True),
]
