"""Tensor ops that run for each sample of a batch on tensors of the same shapes, and could run once for all of them."""

from __future__ import annotations

import numpy as np

from advisor.api import (
    MOST_KEPT,
    Category,
    Events,
    Fix,
    InputWaits,
    Ints,
    Loader,
    Price,
    beyond_calls,
    intersect,
    total,
)

# Rows of the loader itself; what it puts together comes once per batch already.
_LOADER = "enumerate(DataLoader)#"
# What `default_collate` calls for each array of a sample, and for all of them.
_COLLATES = ("aten::lift_fresh", "aten::to", "aten::stack")

FOR_THE_BATCH = Fix(
    "Run the tensor ops of samples once for the whole batch, after it was loaded",
    "semantics",
    "def __getitem__(self, index):\n    return transform(self.images[index])",
    "def __getitem__(self, index):\n    return self.images[index]\n\n"
    "for images in loader:\n    images = transform(images)  # random choices are then the same for the whole batch",
)


# Of the ops of samples so many come for each sample alike: what the others decide upon is seldom.
_ALIKE = 0.9


def at_once_us(price: Price, waits: InputWaits, facts: Loader | None, of_lines: float) -> float:
    """The least that running them once per batch saves, µs of the un-profiled step; 0 where nothing is certain.

    of_lines: the share of the fetches that the lines of samples take. As of other loops over tensors: what ops take
    beyond being called stays, or three tenths of all; so do long runs of Python, which may be no part of it. What lies
    between ops may be another library's work (an image that PIL turns), so that no op counts for more than its call.
    Nothing where samples have ops that others have not, or on other shapes: those cannot be joined.
    """
    size = (facts.batch_size if facts else None) or 1
    if size < 2 or not waits.rows or facts is None or facts.collate not in (None, "default_collate"):
        return 0.0
    ops, events, known = price.ops, price.ops.events, price.deprofiled
    beyond_ns = beyond_calls(events, ops.nesting, ops.links.inside)
    rows = _within(price, waits.rows)
    if beyond_ns is None or len(rows) < size * len(waits.rows) or _alike(events, rows, size * len(waits.rows)) < _ALIKE:
        return 0.0
    python_us = ops.steps.per_step_us(total(intersect(waits.spans, known.python)))
    fetching = known.in_part("fetch", waits.us, len(rows) / ops.steps.count, python_us=python_us)
    stays_us = ops.steps.per_step_us(float(beyond_ns[rows].sum())) + python_us
    taken_us = max(known.us(fetching)[0] - (1 - of_lines) * waits.us, 0.0)
    calls_us = int(np.isin(rows, ops.outermost).sum()) / ops.steps.count * price.added.calls_us("op_calls.single")[0]
    return min(taken_us * (1 - MOST_KEPT), max(taken_us - stays_us, 0.0), calls_us) * (1 - 1 / size)


def _within(price: Price, fetches: tuple[int, ...]) -> Ints:
    """The ops of samples: all in these fetches but the loader's own."""
    events, nesting = price.ops.events, price.ops.nesting
    fetching = np.zeros(len(events), bool)
    fetching[list(fetches)] = True
    mine = events.of(Category.CPU_OP) & ~events.named(_LOADER) & ~events.exactly(*_COLLATES) & nesting.within(fetching)
    found: Ints = np.flatnonzero(mine)
    return found


def _alike(events: Events, rows: Ints, samples: int) -> float:
    """The share of these ops that come equally often for each sample, by their name and their shapes."""
    kinds = events.name[rows].astype(np.int64) * len(events.dims_table) + events.dims[rows]
    _, times = np.unique(kinds, return_counts=True)
    return float(times[times % samples == 0].sum()) / len(rows)
