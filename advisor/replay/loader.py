"""Batches that the loop had to wait for because the loader's workers had not made them yet."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.trace.events import Category, Trace

# A batch that lies ready is handed over faster than this; what a fetch takes beyond it is waiting for a worker.
READY_NS = 1_000_000
# Waits below this, or below this share of a step, are jitter of handing over and not worth a node.
_SHORTEST_WAIT_NS = 100_000
_SMALLEST_SHARE = 0.02


class AwaitedBatch(Struct, frozen=True):
    """A batch made by the workers. Times in ns from the start of the window.

    making      how long the workers made it, since the batch before
    start, end  the fetch on the loop's thread that waited for it;  own: the loop's own part after it had arrived
    """

    row: int
    making: int
    start: int
    end: int
    own: int


class AwaitedBatches(Struct, frozen=True):
    """Batches that the loop waited for, and what of the next one was made before the window closed, ns."""

    awaited: tuple[AwaitedBatch, ...] = ()
    rest: int = 0


def batches(trace: Trace, main: int, window: tuple[int, int], steps: int) -> AwaitedBatches:
    """Fetches from worker processes on the loop's thread that lasted longer than handing over a ready batch.

    Workers made what arrived between two waits in just that time. What they did before the first wait and after the
    last is not seen: they are taken to have kept their pace, unless the loop would then have had to wait there too.
    """
    events, (opens, closes) = trace.events, window
    fetch = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("enumerate(DataLoader)#")
    fetch &= events.named("MultiProcessing") & (events.thread == main)
    rows = np.flatnonzero(fetch & (events.start_ns >= opens) & (events.end_ns <= closes))
    if not len(rows):
        return AwaitedBatches()
    own = min(int(events.dur_ns[rows].min()), READY_NS)
    least = max(_SHORTEST_WAIT_NS, _SMALLEST_SHARE * (closes - opens) / steps)
    waited = np.flatnonzero(events.dur_ns[rows] - own > least)
    if not len(waited):
        return AwaitedBatches()
    start, end = events.start_ns[rows[waited]] - opens, events.end_ns[rows[waited]] - opens
    arrived = end - own
    making = np.diff(arrived, prepend=0)
    columns = (rows[waited].tolist(), making.tolist(), start.tolist(), end.tolist())
    awaited = tuple(AwaitedBatch(*values, own) for values in zip(*columns, strict=True))
    length, first, last = closes - opens, int(arrived[0]), int(arrived[-1])
    if len(waited) > 1:
        pace = (last - first) / (waited[-1] - waited[0])
    elif len(rows) == 1:
        pace = float(length)
    else:
        return AwaitedBatches(awaited)
    unseen = waited[0] + len(rows) - waited[-1]
    return AwaitedBatches(awaited, int(np.clip(pace * unseen - first, 0, length - last)))
