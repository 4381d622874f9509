"""What host rows cost: a device the work that they launch, the loop its time, without the profiler's part."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from advisor.api import (
    Category,
    Intervals,
    Links,
    Nesting,
    Saving,
    Scale,
    Steps,
    Trace,
    Undilated,
    constant,
    starts_in,
    total,
    union,
)

Ints = npt.NDArray[np.int64]

# Work that streams through memory pushes the model and its optimizer out of the core's caches, and the ops after it
# wait for memory: at most 2 MB at 5 GB/s, and no more than a fifth of what is not that work, as in the measured pairs.
_CACHE_BYTES = constant("memory.pushed_out_bytes").value
_BYTES_PER_US = 1e3 * constant("memory.refill_gbs").value
_REFILLED = constant("memory.refilled_share").value


def refill_us(rest_us: float, work_bytes: float = _CACHE_BYTES) -> float:
    """The most that the rest of a step waits for memory after work on so many bytes, which push it out of the caches.

    In µs; without a number of bytes the work is known to stream through all of them.
    """
    return min(min(work_bytes, _CACHE_BYTES) / _BYTES_PER_US, _REFILLED * max(rest_us, 0.0))


def launched(trace: Trace, nesting: Nesting, links: Links, rows: Ints) -> Ints:
    """Rows of the device work that these host rows, and what is inside them, launched in the window."""
    chosen = np.zeros(len(trace.events), bool)
    chosen[rows] = True
    inside = nesting.ancestor(chosen) >= 0
    mine = trace.device_work & (links.launch >= 0) & links.inside & inside[np.maximum(links.launch, 0)]
    found: Ints = np.flatnonzero(mine)
    return found


def launched_us(trace: Trace, steps: Steps, nesting: Nesting, links: Links, rows: Ints) -> float:
    """Device time of what these host rows, and what is inside them, launched in the window, µs per step."""
    return steps.per_step_us(float(trace.events.dur_ns[launched(trace, nesting, links, rows)].sum()))


def share_of(trace: Trace, steps: Steps, undilated: Undilated, spans: Intervals) -> tuple[float, float]:
    """(low, high) share of the un-profiled step that the loop's thread spends in these spans."""
    events = trace.events
    ops = events.of(Category.CPU_OP) & (events.thread == steps.main_thread) & starts_in(events.start_ns, spans)
    return undilated.share(undilated.stretch(spans, events.start_ns[ops], steps))


def widened(
    saving: Saving,
    trace: Trace,
    steps: Steps,
    scale: Scale,
    undilated: Undilated | None,
    spans: Intervals,
    most_us: float,
) -> Saving:
    """The saving with a high end for the case that the profiler slowed the rest of the step more than these spans.

    spans: what would no longer run on the loop's thread; most_us: the time that the finding claims, of the real step.
    A step of few large ops and many small ones is the case: the profiler adds to each op, so the small ones look large.
    """
    if undilated is None or not len(spans):
        return saving
    _, high = share_of(trace, steps, undilated, spans)
    # The bound is told in time of the profiled step, which the profiler stretched.
    most_us = min(most_us * _slower(undilated), scale.step_us)
    return replace(saving, high_us=max(saving.high_us, min(high * scale.step_us, most_us)))


def _slower(undilated: Undilated) -> float:
    return max(undilated.recorded_us / undilated.plain_us, 1.0) if undilated.plain_us else 1.0


def less_by(saving: Saving, instead_us: tuple[float, float]) -> Saving:
    """The saving less what comes in place of the work that goes: (least, most), µs of the un-profiled step."""
    least_us, most_us = instead_us
    high_us = max(saving.high_us - least_us, 0.0)
    return replace(saving, low_us=min(max(saving.low_us - most_us, 0.0), high_us), high_us=high_us)


def of_long_ops(
    scale: Scale,
    undilated: Undilated | None,
    low_us: float,
    high_us: float,
    how: str,
    basis: Literal["modelled", "assumed"] = "modelled",
) -> Saving:
    """The saving of work in ops that are long beside what recording a row costs, given in profiled µs per step.

    low: the profiler slowed them like the rest of the step; high: not at all, and only what is beside them.
    """
    slower = _slower(undilated) if undilated is not None else 1.0
    return scale.saving(low_us, high_us * slower, how, basis)


def taken_us(trace: Trace, steps: Steps, scale: Scale, undilated: Undilated | None, rows: Ints) -> tuple[float, float]:
    """(low, high) µs of the un-profiled step that these rows of the loop's thread take, with what is inside them.

    The ends differ by what is not known: whether the profiler slowed them by their time, or by the rows in them.
    """
    spans = union(trace.events.start_ns[rows], trace.events.end_ns[rows])
    if undilated is None:
        us = scale.scaled(steps.per_step_us(total(spans)))
        return us, us
    low, high = share_of(trace, steps, undilated, spans)
    return low * scale.step_us, high * scale.step_us


def calm(spans: Intervals) -> Intervals:
    """The spans, none longer than three times their median: what a burst of other work stretched is cut off."""
    if len(spans) < 3:
        return spans
    longest = 3 * int(np.median(spans[:, 1] - spans[:, 0]))
    return np.column_stack((spans[:, 0], np.minimum(spans[:, 1], spans[:, 0] + longest)))
