"""Calls of the driver that a settled training does not make: what they take of a step, and what it is without them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import (
    GpuBusy,
    Replay,
    Saving,
    Scale,
    Steps,
    Trace,
    edits,
    intersect,
    replayed_or,
    subtract,
    total,
    union,
)


def left_out(
    trace: Trace, steps: Steps, busy: GpuBusy, scale: Scale, replay: Replay | None, rows: npt.NDArray[np.int64]
) -> tuple[float, Saving]:
    """Profiled µs per step that these calls take, and what a step without them gives back."""
    events = trace.events
    spans = intersect(union(events.start_ns[rows], events.end_ns[rows]), steps.window)
    spent_us = steps.per_step_us(total(spans))
    idle_us = steps.per_step_us(total(subtract(spans, busy.busy)))
    modelled = scale.saving(0.0, idle_us, "at most the calls during which the device was idle")
    how = "low: the device is the bottleneck anyway; high: the step replayed without these calls"
    return spent_us, replayed_or(modelled, replay, [], [edits.remove(rows)], how, scale.scaled(spent_us))
