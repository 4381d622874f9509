"""Calls of the driver that a settled training does not make: what they take of a step, and what it is without them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import (
    GpuBusy,
    Price,
    Saving,
    edits,
    intersect,
    subtract,
    total,
    union,
)


def left_out(price: Price, busy: GpuBusy, rows: npt.NDArray[np.int64]) -> tuple[float, Saving]:
    """Profiled µs per step that these calls take, and what a step without them gives back."""
    events, steps = price.ops.events, price.ops.steps
    spans = intersect(union(events.start_ns[rows], events.end_ns[rows]), steps.window)
    spent_us = steps.per_step_us(total(spans))
    idle_us = steps.per_step_us(total(subtract(spans, busy.busy)))
    how = "low: the device is the bottleneck anyway; high: the step without these calls"
    saving = price.saving([], [edits.remove(rows)], (), how, model_us=(0.0, idle_us), bound_us=spent_us)
    return spent_us, saving
