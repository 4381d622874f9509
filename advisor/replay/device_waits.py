"""Who waits for the device: blocking copies, synchronisations, streams that wait for events, full launch queues."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import rows_named
from advisor.replay.queues import Queues
from advisor.replay.work import Work
from advisor.trace.events import Category, Events, Ints, Mask, Trace

SYNC = re.compile(r"^(cuda|hip|cu|ze|ur|mu)\w*Synchronize|^ur(EventWait|QueueFinish)$", re.IGNORECASE)
# Freeing device memory waits for the whole device.
_FREE = re.compile(r"^(cuda|hip|cu)(Mem)?Free(Host)?(_v2)?$")
_STREAM_WAIT = re.compile(r"StreamWaitEvent", re.IGNORECASE)
# Host and device clocks of one trace agree to some µs.
_CLOCK_NS = 5_000
# Times of one device are exact to a microsecond in older traces.
_AT_ONCE_NS = 1_000
# What begins this soon after the end of work on another stream was waiting for it.
_COINCIDENCE_NS = 30_000
# Before and after any instant of a window.
_EVER = 1 << 60
# A queue of fewer launches than this is never full on known devices (CUDA: 1,024; it shows 1,022 in traces).
_SMALLEST_QUEUE = 256
# A full queue is met again and again, at a depth that varies by a launch or two, in calls that take longer than others.
_DEPTH_JITTER = 2
_OFTEN = 10
_LONGER = 2.0


def named_like(events: Events, pattern: re.Pattern[str]) -> Mask:
    """Which runtime calls have a name of this pattern."""
    return rows_named(events, pattern.search, Category.RUNTIME)


def blocking_copies(trace: Trace, work: Work, opens: int) -> Mask:
    """Copies whose call lasted at least until the data began to move: from or to memory that is not page-locked."""
    events = trace.events
    call = np.maximum(work.launch, 0)
    is_copy = (events.category[work.row] == Category.MEMCPY) & (work.launch >= 0)
    on_host = events.named("HtoD", "DtoH", "Host", "CopyDeviceToHost", "CopyHostToDevice")[work.row]
    pinned = events.named("Pinned")[work.row]
    return np.asarray(is_copy & on_host & ~pinned & (events.end_ns[call] - opens >= work.start))


class Sync(Struct, frozen=True):
    """A host call that waits for work: its row, and the works (indices) it waits for (none = it did not wait)."""

    row: int
    works: tuple[int, ...]
    guessed: bool = False


def syncs(trace: Trace, queues: Queues, window: tuple[int, int]) -> Iterator[Sync]:
    """The synchronisations of the window with the work that each waits for.

    A device synchronisation (and freeing memory) waits for the last work of every stream, a stream synchronisation for
    its stream: that of its `cuda_sync` row, else of the last work that its thread launched. An event synchronisation
    waits for the work before the event where the trace names it, else for the last work that ended before it returned.
    What cannot have been waited for is left out.
    """
    events, (opens, closes) = trace.events, window
    rows = np.flatnonzero(named_like(events, SYNC) | named_like(events, _FREE))
    rows = rows[(events.start_ns[rows] >= opens) & (events.end_ns[rows] <= closes)]
    stated = np.flatnonzero((events.category == Category.SYNC) & (events.correlation > 0))
    row_of = {int(events.correlation[row]): int(row) for row in stated}
    for row in rows.tolist():
        kind = events.text(row).lower()
        start, stop = int(events.start_ns[row]) - opens, int(events.end_ns[row]) - opens
        says = row_of.get(int(events.correlation[row]), -1)
        if "event" in kind:
            found, guessed = _event_work(queues, says, start, stop)
        elif "stream" in kind:
            stream = int(events.stream[says]) if says >= 0 else int(events.stream[row])
            queue = queues.queue_of_stream(stream)
            last = queues.launched_before(row)
            guessed = queue < 0
            queue = int(queues.work.queue[last]) if guessed and last >= 0 else queue
            found = [queues.last_before(queue, start)] if queue >= 0 else []
        else:
            found, guessed = [queues.last_before(queue, start) for queue in queues.all()], False
        yield Sync(row, tuple(at for at in found if at >= 0 and queues.end[at] <= stop + _CLOCK_NS), guessed)


def _event_work(queues: Queues, says: int, start: int, stop: int) -> tuple[list[int], bool]:
    """What an event synchronisation waited for, and whether that had to be guessed."""
    named = queues.recorded(says) if says >= 0 else -1
    if named >= 0:
        return [named], False
    done = [queues.last_done(queue, stop + _CLOCK_NS) for queue in queues.all()]
    done = [at for at in done if at >= 0 and queues.end[at] > start]
    return [max(done, key=lambda at: int(queues.end[at]))] if done else [], True


class StreamWaits(Struct, frozen=True):
    """Pairs of works: `target` waits for `source` of another stream; `inferred` of them are not stated by the trace.

    across   pairs (work, queue): what the queue gets first after the window waits for this work of another queue
    """

    source: Ints
    target: Ints
    inferred: int
    across: tuple[tuple[int, int], ...]


def stream_waits(trace: Trace, queues: Queues, window: tuple[int, int]) -> StreamWaits:
    """Waits between streams: as `cuda_sync` rows state them, else inferred from calls to cudaStreamWaitEvent.

    Those calls name no stream: that of the next work that the calling thread launches is taken to wait for the last
    work that had been launched on each other stream, as far as the times of the trace allow. A stream waits for whoever
    uses it: what another thread launches there first waits, as after reductions that autograd's thread waited for.
    A thread that launches nothing more in the window goes on with what it launched first.
    """
    events, (opens, closes) = trace.events, window
    stated, calls_stated = _stated_waits(events, queues, window)
    calls = np.flatnonzero(named_like(events, _STREAM_WAIT))
    calls = calls[(events.start_ns[calls] >= opens) & (events.start_ns[calls] < closes)]
    calls = calls[~np.isin(events.correlation[calls], list(calls_stated))]
    waiting = queues.queue_after_each(calls)
    calls, waiting = calls[waiting >= 0], waiting[waiting >= 0]
    target = queues.first_after_each(calls, waiting)
    inside, called = target >= 0, events.start_ns[calls] - opens
    inferred: set[tuple[int, int]] = set()
    across: list[tuple[int, int]] = []
    for queue in queues.all():
        before = queues.last_before_each(queue, called)
        # The event may have been recorded before later launches: go back to what had ended when the target began.
        source = np.where(
            inside, np.minimum(before, queues.last_done_each(queue, queues.start[target] + _AT_ONCE_NS)), -1
        )
        found = (source >= 0) & (waiting != queue)
        inferred.update(zip(source[found].tolist(), target[found].tolist(), strict=True))
        # When the target of a wait at the window's end begins is not seen: streams that waited for each other will.
        left = ~inside & (before >= 0) & np.isin(waiting, waiting[found])
        across += zip(before[left].tolist(), waiting[left].tolist(), strict=True)
    inferred.update(_coincidences(events, queues, opens, stated | inferred))
    inferred -= stated
    pairs = np.array(sorted(stated | inferred), np.int64).reshape(-1, 2)
    return StreamWaits(pairs[:, 0], pairs[:, 1], len(inferred), tuple(across))


def _stated_waits(events: Events, queues: Queues, window: tuple[int, int]) -> tuple[set[tuple[int, int]], set[int]]:
    """Pairs of works that `Stream Wait Event` rows name, and the correlations of the calls that they explain."""
    rows = np.flatnonzero((events.category == Category.SYNC) & events.named("Stream Wait Event") & (events.waited >= 0))
    pairs, calls = set(), set()
    for row in rows[(events.start_ns[rows] >= window[0]) & (events.start_ns[rows] < window[1])].tolist():
        source, queue = queues.recorded(row), queues.queue_of_stream(int(events.stream[row]))
        if queue < 0 or events.waited_table[int(events.waited[row])].event < 0:
            continue
        calls.add(int(events.correlation[row]))
        target = queues.first_after(queue, int(events.start_ns[row]) - window[0])
        if source >= 0 and target >= 0 and queues.work.queue[source] != queue:
            pairs.add((source, target))
    return pairs, calls


def _coincidences(events: Events, queues: Queues, opens: int, known: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Work that began right after work of another stream ended, though its own was idle and nothing known held it.

    The call that made it wait was not recorded, names no stream, or stood before other launches; branches of a CUDA
    graph have none. That it began within microseconds of that end is all that tells. An event was recorded before the
    work that waits for it was launched, and so was what the event stands for.
    known: pairs (source, target) of other waits
    """
    work = queues.work
    linked = work.launch >= 0
    call = np.maximum(work.launch, 0)
    called = np.where(linked, events.start_ns[call] - opens, _EVER)
    held = np.maximum(work.previous_end, np.where(linked, events.end_ns[call] - opens, -_EVER))
    if known:
        pairs = np.array(list(known), np.int64)
        np.maximum.at(held, pairs[:, 1], queues.end[pairs[:, 0]])
    alone = (work.start - held > _COINCIDENCE_NS) & (linked | ~work.first)
    targets = np.flatnonzero(alone)
    for queue in queues.all():
        source = queues.last_done_each(queue, work.start[targets] + _AT_ONCE_NS)
        at = np.maximum(source, 0)
        began = queues.end[at] > np.maximum(held[targets], work.start[targets] - _COINCIDENCE_NS)
        before = ~linked[at] | (called[at] <= called[targets])
        found = (source >= 0) & (work.queue[targets] != queue) & began & before
        yield from zip(source[found].tolist(), targets[found].tolist(), strict=True)


class FullQueue(Struct, frozen=True):
    """Launches that find their queue full: `launch` (a work's index) waits until `place` (an earlier work) is done."""

    launch: Ints
    place: Ints
    usual_ns: float  # what such a call takes when it need not wait
    depth: int  # works that fit into the queue; 0 = it was never seen full


def full_queue(trace: Trace, work: Work, opens: int) -> FullQueue:
    """Launches behind a full queue: many calls return at one greatest depth, and take longer than others."""
    events = trace.events
    none = FullQueue(np.empty(0, np.int64), np.empty(0, np.int64), 0.0, 0)
    streams, returned = [], []
    for queue in range(work.queues):
        mine = np.flatnonzero(work.queue == queue)
        rank = np.flatnonzero(work.launch[mine] >= 0)
        streams.append((mine, rank))
        returned.append(events.end_ns[work.launch[mine[rank]]] - opens)
    if not any(_ever_deep(work.start[mine], rank, ends) for (mine, rank), ends in zip(streams, returned, strict=True)):
        return none
    depth_of = np.concatenate(
        [
            rank + 1 - np.searchsorted(work.start[mine], ends, side="right")
            for (mine, rank), ends in zip(streams, returned, strict=True)
        ]
    )
    took = events.dur_ns[work.launch[np.concatenate([mine[rank] for mine, rank in streams])]]
    depth = int(depth_of.max())
    full = depth_of >= depth - _DEPTH_JITTER
    if full.sum() < _OFTEN or full.all():
        return none
    usual = float(np.median(took[~full]))
    if took[full].mean() < _LONGER * usual:
        return none
    depth = int(np.median(depth_of[full]))
    late = [rank[rank > depth] for _, rank in streams]
    return FullQueue(
        np.concatenate([mine[rank] for (mine, _), rank in zip(streams, late, strict=True)]),
        np.concatenate([mine[rank - depth - 1] for (mine, _), rank in zip(streams, late, strict=True)]),
        usual,
        depth,
    )


def _ever_deep(start: Ints, rank: Ints, returned: Ints) -> bool:
    """Whether a queue ever held as many launches as the smallest queues take.

    start: of its works in order;  rank, returned: places of the launched ones, and when their calls returned
    """
    deep = rank + 1 >= _SMALLEST_QUEUE
    return bool((start[rank[deep] + 1 - _SMALLEST_QUEUE] > returned[deep]).any())
