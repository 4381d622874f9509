"""Look-ups in the streams of a window: what had been launched, and what had ended, before an instant."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from advisor.replay.work import Work
from advisor.trace.events import Category, Events, Ints


class Queues:
    """The streams of a window with their works in order. Times in ns from the start of the window."""

    def __init__(self, events: Events, work: Work, opens: int) -> None:
        self._events, self.work, self._opens = events, work, opens
        self.start, self.end = work.start, work.end
        linked = work.launch >= 0
        launched = np.where(linked, events.start_ns[np.maximum(work.launch, 0)] - opens, -1)
        bounds = [*np.flatnonzero(work.first).tolist(), len(work.row)]
        self.ranges = list(pairwise(bounds))
        # Work of an unknown launch was launched no later than what follows it in its stream.
        self._reach = [np.maximum.accumulate(launched[lo:hi]) for lo, hi in self.ranges]
        self.streams = [int(events.stream[work.row[lo]]) for lo, _ in self.ranges]
        calls = work.launch[linked]
        works = np.flatnonzero(linked)
        order = np.lexsort((work.start[works], events.start_ns[calls], events.thread[calls]))
        calls, self._works = calls[order], works[order]
        threads, first = np.unique(events.thread[calls], return_index=True)
        bounds = [*first.tolist(), len(calls)]
        self._of_thread = dict(zip(threads.tolist(), pairwise(bounds), strict=True))
        self._called = events.start_ns[calls]
        self._records: dict[int, int] | None = None

    def all(self) -> range:
        """Indices of the streams."""
        return range(len(self.ranges))

    def queue_of_stream(self, stream: int) -> int:
        """Index of a stream by the number that the trace gives it, -1 where it ran nothing in the window."""
        return self.streams.index(stream) if stream in self.streams else -1

    def last_before(self, queue: int, time: int) -> int:
        """Index of the last work of a queue that was launched before `time`, -1 where there is none."""
        return int(self.last_before_each(queue, np.array([time]))[0])

    def last_before_each(self, queue: int, times: Ints) -> Ints:
        """`last_before` for many instants at once."""
        at = np.searchsorted(self._reach[queue], times, side="left") - 1
        return np.where(at >= 0, self.ranges[queue][0] + at, -1)

    def first_after(self, queue: int, time: int) -> int:
        """Index of the first work of a queue that was launched at or after `time`, -1 where there is none."""
        lo, hi = self.ranges[queue]
        at = lo + int(np.searchsorted(self._reach[queue], time, side="left"))
        return at if at < hi else -1

    def last_done(self, queue: int, time: int) -> int:
        """Index of the last work of a queue that ended by `time`, -1 where there is none."""
        return int(self.last_done_each(queue, np.array([time]))[0])

    def last_done_each(self, queue: int, times: Ints) -> Ints:
        """`last_done` for many instants at once."""
        lo, hi = self.ranges[queue]
        at = np.searchsorted(self.end[lo:hi], times, side="right") - 1
        return np.where(at >= 0, lo + at, -1)

    def launched_before(self, row: int) -> int:
        """The work that the thread of a host row launched last before it, -1 where there is none."""
        lo, hi = self._of_thread.get(int(self._events.thread[row]), (0, 0))
        at = lo + int(self._called[lo:hi].searchsorted(self._events.start_ns[row], side="left")) - 1
        return int(self._works[at]) if at >= lo else -1

    def queue_after_each(self, rows: Ints) -> Ints:
        """The stream of what the thread of each host row launches next, or launched first; -1 where it never does."""
        found = np.full(len(rows), -1, np.int64)
        for thread, (lo, hi) in self._of_thread.items():
            mine = np.flatnonzero(self._events.thread[rows] == thread)
            at = lo + self._called[lo:hi].searchsorted(self._events.start_ns[rows[mine]], side="right")
            found[mine] = self.work.queue[self._works[np.where(at < hi, at, lo)]]
        return found

    def first_after_each(self, rows: Ints, queue: Ints) -> Ints:
        """The first work of a stream each that any thread launched after a host row each, -1 where there is none."""
        found = np.full(len(rows), -1, np.int64)
        for one, (lo, hi) in enumerate(self.ranges):
            mine = np.flatnonzero(queue == one)
            at = lo + np.searchsorted(self._reach[one], self._events.start_ns[rows[mine]] - self._opens, side="right")
            found[mine] = np.where(at < hi, at, -1)
        return found

    def recorded(self, row: int) -> int:
        """The work that a synchronisation row (`cuda_sync`) says was waited for, -1 where it does not say."""
        at = int(self._events.waited[row])
        if at < 0:
            return -1
        waited = self._events.waited_table[at]
        record = self._record_calls().get(waited.event, -1)
        if record < 0:
            return -1
        queue = self.queue_of_stream(waited.stream)
        if queue < 0:
            return self.launched_before(record)
        return self.last_before(queue, int(self._events.start_ns[record]) - self._opens)

    def _record_calls(self) -> dict[int, int]:
        """Correlation -> row of the calls that recorded an event."""
        if self._records is None:
            calls = np.flatnonzero((self._events.category == Category.RUNTIME) & self._events.named("EventRecord"))
            self._records = {int(self._events.correlation[call]): int(call) for call in calls}
        return self._records
