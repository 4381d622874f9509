"""The loop standing in `next()` on its data loader."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import Lines
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Category, Events, Mask, Trace
from advisor.trace.intervals import Intervals, intersect, subtract, total


class InputWaits(Struct, frozen=True, eq=False):
    """Fetches (`enumerate(DataLoader)#….__next__`) on the loop's thread, in W.

    spans           union of the fetches
    exposed         spans minus device-busy time; equal to spans without a device
    us, exposed_us  µs per step; of exposed without profiler overhead, if there is a device (`GpuBusy.rest`)
    share           length of exposed / |W|, corrected likewise: the metric input_wait_share
    single_process  most batches were loaded in the loop's own process (num_workers=0)
    fetches         per step
    longest_us      the longest single fetch
    where           the user's line of the longest fetch, if known
    asked_at        the lines of fetches, if known
    rows            the fetches themselves
    """

    spans: Intervals
    exposed: Intervals
    us: float
    exposed_us: float
    share: float
    single_process: bool
    fetches: float
    longest_us: float
    where: Source | None
    rows: tuple[int, ...] = ()
    asked_at: tuple[Source, ...] = ()

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, lines: Lines, busy: GpuBusy | None) -> InputWaits:
        """Waits for input. Raises Missing if the trace has no fetch at all: not measured is not zero."""
        events = trace.events
        fetches = fetch_rows(events) & (events.thread == steps.main_thread)
        if not fetches.any():
            raise Missing(
                "no fetch from a DataLoader was recorded on the loop's thread: the loop does not use one, or creates "
                "its batches in another way"
            )
        spans = intersect(events.covered(fetches), steps.window)
        exposed = spans if busy is None else subtract(spans, busy.busy)
        rest = busy.rest if busy else 1.0
        rows = np.flatnonzero(fetches)
        inside = rows[steps.step_of(events.start_ns[rows]) >= 0]
        loader = events.names[int(np.argmax(np.bincount(events.name[rows], weights=events.dur_ns[rows])))]
        longest = inside[int(np.argmax(events.dur_ns[inside]))] if len(inside) else rows[0]
        return cls(
            spans=spans,
            exposed=exposed,
            us=steps.of_window_us(total(spans)),
            exposed_us=steps.of_window_us(total(exposed)) * rest,
            share=total(exposed) / steps.window_ns * rest,
            single_process="SingleProcess" in loader,
            fetches=len(inside) / steps.count,
            longest_us=float(events.dur_ns[longest]) / 1e3 if len(inside) else 0.0,
            where=_asked_at(lines, events, int(longest)),
            rows=tuple(inside.tolist()),
            asked_at=tuple({at: None for row in inside.tolist() if (at := _asked_at(lines, events, row))}),
        )


def _asked_at(lines: Lines, events: Events, row: int) -> Source | None:
    """The user's line that ran as a fetch began: later that may be one of the data set, which the fetch calls."""
    if lines.frames is not None or not len(lines.spans):
        return lines.where_op(row)
    start_ns = int(events.start_ns[row])
    span = int(np.searchsorted(lines.spans[:, 0], start_ns, side="right")) - 1
    if span < 0 or start_ns >= lines.spans[span, 1]:
        return lines.where_op(row)
    return lines.sources[int(lines.span_source[span])]


def fetch_rows(events: Events) -> Mask:
    """Rows in which somebody stands in `next()` on a DataLoader (torch writes them as ops or as annotations)."""
    return events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("enumerate(DataLoader)#")
