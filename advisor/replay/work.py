"""Device work as queues of nodes, and the constants that stand between a launch and its work."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.constants import constant
from advisor.trace.events import Category, Ints, Mask, Trace
from advisor.trace.numbers import distinct_pairs, numbered

# A kernel launched this long before its predecessor ends was surely waiting in the queue.
_QUEUED_NS = 20_000
# Beyond this a pause between two queued kernels is a wait for something else, not the queue's own pace.
_LONGEST_GAP_NS = 20_000
# Where no kernel ever found an empty stream: the middle of what is known.
_USUAL_LAUNCH_NS = 500.0 * sum(constant("device.launch_delay_us").range)
# Fewer samples than this say nothing about a typical delay.
_ENOUGH = 5


class Work(Struct, frozen=True, eq=False):
    """Device work, sorted by queue (one per stream) and start. Times in ns from the start of the window.

    row      event rows
    queue    index of the stream, 0 …
    start, dur, end
    launch   row of the call that started it, -1 where unknown or before the window
    early    work that was launched before the window: it stands in the queue when the window opens
    previous end of the work before it in its queue, very small for the first
    """

    row: Ints
    queue: Ints
    start: Ints
    dur: Ints
    launch: Ints
    early: Mask
    queues: int

    @property
    def end(self) -> Ints:
        """Ends."""
        return self.start + self.dur

    @property
    def previous_end(self) -> Ints:
        """End of the work before in the same queue; a very early time for the first of a queue."""
        ends = np.concatenate(([-(1 << 60)], self.end[:-1])).astype(np.int64)
        ends[self.first] = -(1 << 60)
        return ends

    @property
    def first(self) -> Mask:
        """Which work is the first of its queue."""
        if not len(self.queue):
            return np.zeros(0, bool)
        return np.concatenate(([True], self.queue[1:] != self.queue[:-1]))


def collect(trace: Trace, launch: Ints, window: tuple[int, int]) -> Work:
    """The device work of a window: launched in it (wherever it ends), or still running or queued when it opens."""
    events, (opens, closes) = trace.events, window
    rows = np.flatnonzero(trace.device_work)
    called = launch[rows]
    call_start = np.where(called >= 0, events.start_ns[np.maximum(called, 0)], -1)
    _, queue = distinct_pairs(events.device[rows], events.stream[rows])
    order = np.lexsort((events.start_ns[rows], queue))
    rows, called, call_start, queue = rows[order], called[order], call_start[order], queue[order]
    linked = (called >= 0) & (call_start >= opens) & (call_start < closes)
    # Work without a launch belongs to the window where linked work of its stream ran before it; else it was queued.
    seen = _seen_before(linked, queue)
    unlinked = (called < 0) & seen & (events.start_ns[rows] < closes)
    early = (
        ~linked & ~unlinked & (events.end_ns[rows] > opens) & (events.start_ns[rows] < closes) & (call_start < opens)
    )
    keep = linked | unlinked | early
    rows, called, queue, early = rows[keep], called[keep], queue[keep], early[keep]
    linked = linked[keep]
    start = np.where(early, np.maximum(events.start_ns[rows], opens), events.start_ns[rows]) - opens
    dense = numbered(queue)[1]
    return Work(
        row=rows.astype(np.int64),
        queue=dense.astype(np.int64),
        start=start.astype(np.int64),
        dur=(events.end_ns[rows] - opens - start).astype(np.int64),
        launch=np.where(linked, called, -1).astype(np.int64),
        early=early,
        queues=int(dense.max()) + 1 if len(rows) else 0,
    )


def _seen_before(linked: Mask, queue: Ints) -> Mask:
    """Whether work with a launch in the window stands earlier in the same queue (rows sorted by queue and start)."""
    if not len(linked):
        return linked
    total = np.cumsum(linked)
    first = np.concatenate(([0], np.flatnonzero(queue[1:] != queue[:-1]) + 1))
    before: Ints = np.repeat(total[first] - linked[first], np.diff(np.append(first, len(queue))))
    return np.asarray(total - before > 0)


class Delays(Struct, frozen=True):
    """What lies between a launch and its work, one value each for the whole trace, ns.

    launch  from the end of the launch call to the start of the work, on an empty stream (negative where kernels start
            before the call returns)
    queue   from the end of queued work to the start of the next
    """

    launch: float
    queue: float


def fit_delays(trace: Trace, work: Work, opens: int, blocking: Mask, waiting: Ints) -> Delays:
    """The medians over kernels on an empty stream and over kernels that were surely queued.

    waiting: works that waited for another stream, which delayed them for as long as that took
    """
    events = trace.events
    linked = (work.launch >= 0) & ~blocking & (events.category[work.row] == Category.KERNEL)
    linked[waiting] = False
    call = np.maximum(work.launch, 0)
    call_start, call_end = events.start_ns[call] - opens, events.end_ns[call] - opens
    previous_end = work.previous_end
    after_call, after_work = work.start - call_end, work.start - previous_end
    empty = after_call[linked & (previous_end < call_start)]
    queued = after_work[linked & (previous_end > call_end + _QUEUED_NS) & (after_work < _LONGEST_GAP_NS)]
    return Delays(
        launch=float(np.median(empty)) if len(empty) >= _ENOUGH else _USUAL_LAUNCH_NS,
        queue=float(max(np.median(queued), 0)) if len(queued) >= _ENOUGH else 0.0,
    )
