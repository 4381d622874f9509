"""The dependency graph of a trace as arrays: work on the device, points of the host threads, edges between them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.sampled_steps import in_a_row
from advisor.analyses.base.steps import Steps
from advisor.replay import device_waits
from advisor.replay.edges import EdgeDraft, Edges, Why
from advisor.replay.loader import batches
from advisor.replay.points import Draft, Kind, Points
from advisor.replay.queues import Queues
from advisor.replay.threads import Burst, bursts
from advisor.replay.work import Delays, Work, collect, fit_delays
from advisor.trace.events import Ints, Trace
from advisor.trace.numbers import distinct, row_type


class Graph(Struct, frozen=True, eq=False):
    """What a window of whole steps did and what waited for what. Times in ns from the start of the window.

    work, points, edges   the nodes and what holds them back besides the order of their own queue
    delays        the two fitted constants: launch and queue
    steps         number of steps;  length_ns: of the window
    threads       index into `events.threads` of each host queue; the first is the loop's
    loader        works[loader:] are batches that the loader's workers made (queue of their own, no device)
    notes         how dependencies were found that the trace does not state
    across        pairs (work, stream): the stream's first work of the next round waits for this work
    """

    work: Work
    points: Points
    edges: Edges
    delays: Delays
    steps: int
    length_ns: int
    threads: tuple[int, ...]
    loader: int
    notes: tuple[str, ...]
    across: tuple[tuple[int, int], ...] = ()


def build(trace: Trace, steps: Steps, links: Links, nesting: Nesting) -> Graph:
    """The graph of the steps of a trace that are replayed."""
    window, starts = replayed_run(steps)
    work = collect(trace, links.launch, window)
    builder = _Builder(trace, steps.main_thread, window, work, len(starts))
    builder.threads_of(nesting)
    builder.launches()
    builder.copies()
    builder.syncs()
    builder.stream_waits()
    builder.fetches()
    builder.steps(starts)
    return builder.graph(len(starts))


def longest_run(steps: Steps) -> tuple[tuple[int, int], Ints]:
    """The window with most steps (start, end) and the starts of its steps, all absolute ns."""
    inside = [(steps.spans[:, 0] >= lo) & (steps.spans[:, 0] < hi) for lo, hi in steps.recorded]
    best = int(np.argmax([mask.sum() for mask in inside]))
    lo, hi = steps.recorded[best]
    return (int(lo), int(hi)), steps.spans[inside[best], 0]


def replayed_run(steps: Steps) -> tuple[tuple[int, int], Ints]:
    """The window that is replayed and the starts of its steps: the longest run, of a long one twenty steps in a row."""
    (opens, closes), starts = longest_run(steps)
    edges = np.append(starts, closes)
    chosen = in_a_row(np.diff(edges))
    return (int(edges[chosen.start]) if chosen.start else opens, int(edges[chosen.stop])), starts[chosen]


class _Builder:
    """Gathers points and edges, one kind of dependency after the other."""

    def __init__(self, trace: Trace, main: int, window: tuple[int, int], work: Work, steps: int) -> None:
        self.trace, self.main, self.window, self.work = trace, main, window, work
        self.events, self.opens = trace.events, window[0]
        self.lookup = Queues(trace.events, work, window[0])
        self.draft, self.edges = Draft(), EdgeDraft()
        self.queue_of_thread = {main: 0}
        self.notes: list[str] = []
        self.blocking = device_waits.blocking_copies(trace, work, self.opens)
        self.waits = device_waits.stream_waits(trace, self.lookup, window)
        self.delays = fit_delays(trace, work, self.opens, self.blocking, self.waits.target)
        self.batches = batches(trace, main, window, steps)

    def threads_of(self, nesting: Nesting) -> None:
        """Threads besides the loop's, each burst released by the loop and most of them awaited by it."""
        events = self.events
        calls = np.zeros(len(events), bool)
        calls[self.work.launch[self.work.launch >= 0]] = True
        calls |= device_waits.named_like(events, device_waits.SYNC)
        self._bursts(list(bursts(self.trace, self.main, nesting.holders, calls, self.window)))

    def _bursts(self, found: list[Burst]) -> None:
        """Four points each: the loop releases it, it begins, it leaves, the loop goes on; two where nobody waits."""
        queue = [self.queue_of_thread.setdefault(one.thread, len(self.queue_of_thread)) for one in found]
        start, end = [one.start for one in found], [one.end for one in found]
        loop, never = np.zeros(len(found), np.int64), np.full(len(found), -1)
        kinds = (Kind.RELEASE, Kind.BEGIN, Kind.LEAVE, Kind.JOIN)
        joined = np.array([one.joined for one in found], bool)
        kept = np.column_stack((np.ones((len(found), 2), bool), joined, joined)).ravel()

        def points(*columns: npt.ArrayLike) -> Ints:
            return np.asarray(np.column_stack(columns).ravel()[kept], np.int64)

        ids = self.draft.add(
            points(loop, queue, queue, loop),
            points(start, start, end, end),
            points(*(np.full(len(found), kind) for kind in kinds)),
            -1,
            waits_from=points(never, start, never, start),
            begun=points(start, start, end, start),
        )
        self.edges.add(Why.THREAD, ids[0::2], ids[1::2], from_point=True, to_point=True)

    def launches(self) -> None:
        """Calls that return without waiting for their work, but for those that find the queue full."""
        events, work = self.events, self.work
        full = device_waits.full_queue(self.trace, work, self.opens)
        linked = (work.launch >= 0) & ~self.blocking
        calls = distinct(work.launch[linked], len(events))
        held = np.unique(work.launch[full.launch])
        blocked = held[events.dur_ns[held] > 2 * full.usual_ns]
        point_of_call = np.full(len(events), -1, row_type(len(events)))
        for thread in distinct(events.thread[calls], len(events.threads)).tolist():
            queue = self.queue_of_thread.get(int(thread))
            if queue is None:
                continue
            mine = calls[events.thread[calls] == thread]
            start, end = events.start_ns[mine] - self.opens, events.end_ns[mine] - self.opens
            since = np.where(np.isin(mine, held), end, -1) if len(held) else np.full(len(mine), -1)
            short = start + int(full.usual_ns)
            since = np.where(np.isin(mine, blocked), np.minimum(short, end), since) if len(blocked) else since
            point_of_call[mine] = self.draft.add(queue, end, Kind.LAUNCH, mine, waits_from=since, begun=start)
        works = np.flatnonzero(linked & (point_of_call.take(np.maximum(work.launch, 0)) >= 0))
        self.edges.add(
            Why.LAUNCH, point_of_call[work.launch[works]], works, self.delays.launch, from_point=True, to_point=False
        )
        known = point_of_call[work.launch[full.launch]] >= 0
        if known.any():
            points = point_of_call[work.launch[full.launch[known]]]
            self.edges.add(Why.FULL, full.place[known], points, self.delays.queue, from_point=False, to_point=True)
            self.notes.append(
                f"a stream takes {full.depth} launches before the host has to wait (inferred from long launches)"
            )

    def copies(self) -> None:
        """Copies that keep the host: the data moves after the call began, the call returns once it has moved."""
        events, work = self.events, self.work
        at = np.flatnonzero(self.blocking)
        queue = self._queues_of(work.launch[at])
        at, queue = at[queue >= 0], queue[queue >= 0]
        row, done = work.launch[at], work.end[at]
        start, end = events.start_ns[row] - self.opens, events.end_ns[row] - self.opens
        # On an empty stream the data waits only for the host that gathers it into page-locked memory: host work.
        staged = np.where(work.previous_end[at] <= start, work.start[at] - start, self.delays.launch)
        ids = self.draft.add(
            np.repeat(queue, 2),
            np.column_stack((start, end)).ravel(),
            np.tile((int(Kind.LAUNCH), int(Kind.WAIT)), len(at)),
            np.repeat(row, 2),
            waits_from=np.column_stack((np.full(len(at), -1), start)).ravel(),
            tail=np.column_stack((np.zeros(len(at), np.int64), np.maximum(end - done, 0))).ravel(),
            begun=np.repeat(start, 2),
        )
        self.edges.add(Why.LAUNCH, ids[0::2], at, np.maximum(staged, 0), from_point=True, to_point=False)
        self.edges.add(Why.COPY, at, ids[1::2], np.minimum(end - done, 0), from_point=False, to_point=True)

    def syncs(self) -> None:
        """Host calls that wait for work of the device; what they take after it is done is their own work."""
        found = [sync for sync in device_waits.syncs(self.trace, self.lookup, self.window) if sync.works]
        queue = self._queues_of(np.array([sync.row for sync in found], np.int64))
        found, queue = [found[i] for i in np.flatnonzero(queue >= 0)], queue[queue >= 0]
        rows = np.array([sync.row for sync in found], np.int64)
        start, end = self.events.start_ns[rows] - self.opens, self.events.end_ns[rows] - self.opens
        works = np.array([at for sync in found for at in sync.works], np.int64)
        number = np.repeat(np.arange(len(found)), [len(sync.works) for sync in found])
        done = start.copy()
        np.maximum.at(done, number, self.work.end[works])
        back = self.draft.add(queue, end, Kind.WAIT, rows, waits_from=start, tail=np.maximum(end - done, 0))
        self.edges.add(Why.SYNC, works, back[number], from_point=False, to_point=True)
        guessed = sum(sync.guessed for sync in found)
        if guessed:
            self.notes.append(
                f"{guessed} synchronisations do not name their stream or event; it was inferred from times"
            )

    def _queues_of(self, rows: Ints) -> Ints:
        """The queue of each host row's thread, -1 where it has none."""
        queue = np.full(len(self.events.threads) + 1, -1, np.int64)
        queue[list(self.queue_of_thread)] = list(self.queue_of_thread.values())
        return np.asarray(queue[self.events.thread[rows]], np.int64)

    def stream_waits(self) -> None:
        """Streams that wait for events of others."""
        found = self.waits
        if len(found.target):
            self.edges.add(Why.EVENT, found.source, found.target, from_point=False, to_point=False)
        if found.inferred:
            self.notes.append(f"{found.inferred} waits between streams were inferred from calls and times")

    def fetches(self) -> None:
        """Batches of worker processes that the loop had to wait for."""
        for number, batch in enumerate(self.batches.awaited):
            point = self.draft.add(0, batch.end, Kind.FETCH, batch.row, waits_from=batch.start, tail=batch.own)
            self.edges.add(Why.LOADER, len(self.work.row) + number, point, from_point=False, to_point=True)

    def steps(self, starts: Ints) -> None:
        """Starts of the steps and the end of the last."""
        times = np.append(starts, self.window[1]) - self.opens
        self.draft.add(0, times, Kind.STEP, -1)

    def graph(self, steps: int) -> Graph:
        """Everything, numbered."""
        work = self._with_loader()
        points, index = self.draft.sorted()
        return Graph(
            work=work,
            points=points,
            edges=self.edges.edges(index, len(work.row)),
            delays=self.delays,
            steps=steps,
            length_ns=self.window[1] - self.opens,
            threads=tuple(self.queue_of_thread),
            loader=len(self.work.row),
            notes=tuple(self.notes),
            across=self.waits.across,
        )

    def _with_loader(self) -> Work:
        """Device work followed by the batches that workers made, as one more queue."""
        work, made = self.work, self.batches.awaited
        if not made:
            return work
        # The last node is what the workers did for the next batch: nobody waits for it inside the window.
        making = np.array([batch.making for batch in made] + [self.batches.rest], np.int64)
        rows = np.array([batch.row for batch in made] + [made[-1].row], np.int64)
        count = len(rows)

        def join(a: Ints, b: Ints) -> Ints:
            return np.concatenate((a, b)).astype(np.int64)

        return Work(
            row=join(work.row, rows),
            queue=join(work.queue, np.full(count, work.queues)),
            start=join(work.start, np.cumsum(making) - making),
            dur=join(work.dur, making),
            launch=join(work.launch, np.full(count, -1)),
            early=np.concatenate((work.early, np.zeros(count, bool))),
            queues=work.queues + 1,
        )
