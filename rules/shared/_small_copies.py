"""Small tensors that are copied to the device one by one: one rule tells them, others leave them to it."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Ints, Lines, RowMask, Source, StepOps

# Copies up to 64 KB take about as long as their launch, whatever their size.
SMALL_BYTES = 64 << 10
# Of a step, at one line: inputs, targets, masks and lengths of an ordinary batch are fewer.
SEVERAL = 8
# Ops that copy because the script says so; indexing and the like copy what they need by themselves.
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda")


def small_copies(recorded: StepOps, lines: Lines) -> dict[Source | None, Ints]:
    """Outermost ops on the loop's thread that copy little to the device, in order, by line."""
    events, links, nesting = recorded.events, recorded.links, recorded.nesting
    small = events.of(Category.MEMCPY) & events.named("HtoD") & (events.bytes >= 0) & (events.bytes <= SMALL_BYTES)
    rows = np.flatnonzero(small & links.inside & (links.launch >= 0))
    call = links.launch[rows]
    outer = np.where(nesting.outer_op[call] >= 0, nesting.outer_op[call], call)
    outer = np.unique(outer[events.thread[call] == recorded.steps.main_thread])
    outer = outer[events.exactly(*_COPIES)[outer]]
    groups: dict[Source | None, list[int]] = {}
    for row in outer.tolist():
        groups.setdefault(lines.where_op(row), []).append(row)
    return {where: np.array(found, np.int64) for where, found in groups.items()}


def told_as_small(recorded: StepOps, lines: Lines, rows: Ints) -> RowMask:
    """Which of these ops are among several small copies of a line."""
    several = SEVERAL * recorded.steps.count
    groups = [found for found in small_copies(recorded, lines).values() if len(found) >= several]
    return np.isin(rows, np.concatenate(groups)) if groups else np.zeros(len(rows), np.bool_)
