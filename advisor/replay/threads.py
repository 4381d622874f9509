"""Hand-offs between host threads: the loop's thread releases another one and, mostly, waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.trace.events import Category, Ints, Mask, Trace
from advisor.trace.intervals import Intervals, subtract
from advisor.trace.numbers import distinct

# A thread that pauses longer than this was waiting for another one to give it work.
_PAUSE_NS = 100_000
# The loop's thread waits for a burst that fills this share of the time in which it did nothing itself.
_WAITED_SHARE = 0.5


class Burst(Struct, frozen=True):
    """A stretch of work of a thread besides the loop's, ns from the start of the window.

    joined  the loop's thread did nothing meanwhile: it waited for the burst to end (a backward, for example)
    """

    thread: int
    start: int
    end: int
    joined: bool


def bursts(trace: Trace, main: int, holders: Ints, calls: Mask, window: tuple[int, int]) -> Iterator[Burst]:
    """Bursts of the threads that run ops or launch work, by thread and time.

    holders: the rows that enclose others; calls: rows of runtime calls that launch or wait.
    """
    events, (opens, closes) = trace.events, window
    inside = (events.start_ns >= opens) & (events.end_ns <= closes) & (events.dur_ns > 0)
    host = inside & (events.of(Category.CPU_OP) | calls)
    rows_of_loop = inside & events.of(Category.CPU_OP, Category.RUNTIME) & (events.thread == main)
    innermost = rows_of_loop.copy()
    innermost[holders] = False
    # Surely idle is the loop's thread outside all ops; inside an op that waits (a wrapper), outside the rows in it.
    quiet = tuple(
        subtract(np.array([[0, closes - opens]], np.int64), events.covered(rows) - opens)
        for rows in (rows_of_loop, innermost)
    )
    pids = events.threads[main].pid if main >= 0 else ""
    for thread in distinct(events.thread.compress(host), len(events.threads)).tolist():
        mine = events.thread == thread
        launches = events.threads[thread].pid == pids and (calls & mine).any()
        if thread == main or not (launches or _computes(mine, host, events.dur_ns, closes - opens)):
            continue
        spans = events.covered(host & mine) - opens
        yield from _bursts(thread, spans, quiet)


def _computes(of_thread: Mask, host: Mask, dur: Ints, window_ns: int) -> bool:
    """Whether a thread without launches runs ops for long enough to matter (1 % of the window)."""
    return bool(dur[of_thread & host].sum() > 0.01 * window_ns)


def _bursts(thread: int, spans: Intervals, quiet: tuple[Intervals, ...]) -> Iterator[Burst]:
    """Spans in one quiet stretch of the loop's thread are one burst; others end where the thread pauses."""
    group = np.full(len(spans), -1)
    length = np.zeros(len(spans), np.int64)
    for number, stretches in enumerate(quiet):
        if not len(stretches):
            continue
        at = np.searchsorted(stretches[:, 0], spans[:, 0], side="right") - 1
        within = (group < 0) & (at >= 0) & (spans[:, 1] <= stretches[np.maximum(at, 0), 1])
        group[within] = 2 * at[within] + number
        length[within] = (stretches[:, 1] - stretches[:, 0])[at[within]]
    pause = spans[1:, 0] - spans[:-1, 1] > _PAUSE_NS
    new = np.flatnonzero((group[1:] != group[:-1]) | ((group[1:] < 0) & pause)) + 1
    for lo, hi in pairwise([0, *new.tolist(), len(spans)]):
        start, end = int(spans[lo, 0]), int(spans[hi - 1, 1])
        joined = group[lo] >= 0 and end - start >= _WAITED_SHARE * length[lo]
        yield Burst(thread, start, end, bool(joined))
