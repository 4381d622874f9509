"""The host side of the graph: the instants of each thread at which it touches the device or another thread."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.trace.events import Ints, Mask


class Kind(IntEnum):
    """What a host thread does at a point."""

    STEP = 0  # a step begins, or the last one ends
    LAUNCH = 1  # a call has handed work to the device
    WAIT = 2  # a call returns that waited for the device
    RELEASE = 3  # another thread may go on
    BEGIN = 4  # a thread starts what another one released
    LEAVE = 5  # a thread has done what another one waits for
    JOIN = 6  # a thread goes on after another one is done
    FETCH = 7  # a batch from the loader's workers has arrived


class Points(Struct, frozen=True, eq=False):
    """Points sorted by thread and time. Times in ns from the start of the window.

    thread  index of the host queue, 0 = the loop's thread
    time    when the point was reached in the trace
    lead_start, lead_end   the host work that leads to it: what the thread did since its last point
    tail    own work after what it waits for (a sync's return, for example), ns
    waits   the point may have to wait for nodes of other queues
    row     the event that the point belongs to, -1 where none
    """

    thread: Ints
    time: Ints
    lead_start: Ints
    lead_end: Ints
    tail: Ints
    waits: Mask
    kind: npt.NDArray[np.int8]
    row: Ints

    def __len__(self) -> int:
        return len(self.time)

    @property
    def lead(self) -> Ints:
        """Host work that leads to each point, ns."""
        lead: Ints = np.maximum(self.lead_end - self.lead_start, 0)
        return lead


class Draft:
    """Collects points in any order; `sorted()` gives them with the work between them."""

    def __init__(self) -> None:
        self.columns: list[list[Ints]] = [[] for _ in range(7)]
        self.count = 0

    def add(
        self,
        thread: npt.ArrayLike,
        time: npt.ArrayLike,
        kind: npt.ArrayLike,
        row: npt.ArrayLike,
        waits_from: npt.ArrayLike | None = None,
        tail: npt.ArrayLike = 0,
        begun: npt.ArrayLike | None = None,
    ) -> Ints:
        """Adds points; returns their ids.

        waits_from: since when they waited (None = not); begun: when the call began that ends at the point (None =
        no call ends here, or it is the wait itself).
        """
        times = np.atleast_1d(np.asarray(time, np.int64))
        size = len(times)
        since = -1 if waits_from is None else waits_from
        if begun is None:
            begun = times if waits_from is None else since
        for column, value in zip(self.columns, (thread, times, kind, row, since, tail, begun), strict=True):
            column.append(np.full(size, value, np.int64))
        ids = np.arange(self.count, self.count + size)
        self.count += size
        return ids

    def sorted(self) -> tuple[Points, Ints]:
        """The points, and for each id that `add` gave the index of its point."""
        if not self.count:
            self.add(0, np.empty(0, np.int64), Kind.STEP, -1)
        thread, time, kind, row, waits_from, tail, begun = (np.concatenate(column) for column in self.columns)
        # Calls may follow each other without a pause: what ends at an instant stands before what begins at it.
        order = np.lexsort((begun, time, thread))
        index = np.empty(len(order), np.int64)
        index[order] = np.arange(len(order))
        thread, time, kind, row = (column.take(order) for column in (thread, time, kind, row))
        waits_from, tail = waits_from.take(order), tail.take(order)
        previous = np.concatenate(([0], time[:-1])).astype(np.int64)
        if len(thread):
            previous[np.concatenate(([True], thread[1:] != thread[:-1]))] = 0
        waits = waits_from >= 0
        lead_end = np.where(waits, np.minimum(waits_from, time), time)
        # What a thread begins on another one's word has no work before it: it was waiting.
        lead_end = np.where(kind == Kind.BEGIN, previous, lead_end)
        # A call inside another one that waited, too, has its own work counted already.
        tail = np.minimum(tail, time - previous)
        points = Points(thread, time, previous, lead_end, tail, waits, kind.astype(np.int8), row)
        return points, index
