"""Steps that nothing marks: the sequence of ops that a loop repeats, in a trace of a device alone that of its work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.analyses.base.classify import graph_launches, launch_calls
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import Intervals
from advisor.trace.op_names import AUTOGRAD_NODE

# Two sequences of a loop show how long it is, a third that this was no chance.
_FEWEST = 3
# Ops that agree with those one period later: a loop that logs or saves now and then has a few more.
_ALIKE = 0.98
# Names that are in no repetition, as a share of all names: before and after the layers of one forward pass come ops of
# other names (embedding, pooling, loss).
_OTHERS = 0.05
# Lengths tried, and ops looked at: a loop in eager mode has thousands of ops per step.
_MOST_LENGTHS, _MOST_OPS = 40, 200_000


def repeated_steps(trace: Trace, thread: int) -> Intervals | None:
    """Start and end of each repetition of the thread's outermost ops; None where they do not repeat as a loop's do.

    Where a trace holds no op and no call of the host, what repeats is the device's work.

    A repetition is a step if every one of them holds a backward pass with ops besides or a fetch from a loader; or a
    copy to the device or the launch of a graph, where nearly all names of the thread come again. The layers of a model
    repeat, too, and hold none of these. Where there is none of these at all, each repetition has to read from the
    device, as a loop does that decides whether to go on; layers may read as well (experts), so of such lengths the one
    counts at which names agree best. Where nothing repeats well, because a loop of few ops logs now and then, what lies
    between two fetches from a loader is a step if the device gets work in each.
    """
    events = trace.events
    rows = _outermost(events, thread)
    if not events.of(Category.CPU_OP, Category.RUNTIME).any():
        rows = np.flatnonzero(trace.device_work)
    if not 2 * _FEWEST <= len(rows) <= _MOST_OPS:
        return None
    names, best = events.name[rows].astype(np.int64), 0.0
    reading: Intervals | None = None
    for length in _lengths(names):
        first = _begins(names, length)
        count = (len(names) - first) // length
        if count < _FEWEST:
            continue
        at = first + length * np.arange(count)
        starts = events.start_ns[rows[at]]
        last = rows[min(at[-1] + length, len(rows)) - 1]
        spans = np.column_stack((starts, np.append(starts[1:], events.end_ns[last])))
        if _is_loop(trace, rows, spans) or (_may_be_loop(trace, spans) and _few_others(names, first, count * length)):
            return spans
        if _reads(trace, spans) and _few_others(names, first, count * length):
            agree = float((names[first + length :] == names[first:-length]).mean())
            best, reading = (agree, spans) if agree > best else (best, reading)
    return _between_fetches(trace, thread) if reading is None else reading


def _between_fetches(trace: Trace, thread: int) -> Intervals | None:
    """From one fetch to the next; the last step, whose end is not known, is none."""
    events = trace.events
    starts = events.start_ns[_fetches(events, thread)]
    if len(starts) <= _FEWEST:
        return None
    spans = np.column_stack((starts[:-1], starts[1:]))
    return spans if _in_each(events, launch_calls(events) | graph_launches(events), spans) else None


def _outermost(events: Events, thread: int) -> Ints:
    """Ops of the thread, and fetches of batches, within no other; times are rounded, so ops in a row may overlap."""
    rows = np.flatnonzero(events.of(Category.CPU_OP) & (events.thread == thread) | _fetches(events, thread))
    reach = np.maximum.accumulate(events.end_ns[rows]) if len(rows) else rows
    later = (events.start_ns[rows[1:]] >= reach[:-1]) | (events.end_ns[rows[1:]] > reach[:-1])
    apart: Mask = np.concatenate(([True], later))[: len(rows)]
    found: Ints = rows[apart]
    return found


def _fetches(events: Events, thread: int) -> Mask:
    """Fetches of batches from a loader: with one begins what an iteration does."""
    named = events.of(Category.ANNOTATION) & events.named("enumerate(DataLoader)#")
    found: Mask = named & (events.thread == thread)
    return found


def _lengths(names: Ints) -> Iterator[int]:
    """Distances at which names come again, of the rarest that come often enough, shortest first.

    A name that comes several times in an iteration has the iteration's length between every so many of its places.
    """
    values, counts = np.unique(names, return_counts=True)
    found: set[int] = set()
    for name in values[np.argsort(np.where(counts >= _FEWEST, counts, len(names) + 1), kind="stable")].tolist():
        distance = np.diff(np.flatnonzero(names == name))
        if len(distance) >= _FEWEST - 1:
            found |= {int(one) for one in np.unique(distance)[:4]}
            found |= _several_apart(np.flatnonzero(names == name))
        if len(found) >= _MOST_LENGTHS:
            break
    yield from sorted(found)


def _several_apart(places: Ints) -> set[int]:
    """The distance that most places have to the one so many places on: of the fewest, two at least."""
    for several in range(2, min(len(places) // _FEWEST, _MOST_LENGTHS) + 1):
        distance = places[several:] - places[:-several]
        usual = int(np.sort(distance)[len(distance) // 2])
        if 2 * (distance == usual).sum() > len(distance):
            return {usual}
    return set()


def _begins(names: Ints, length: int) -> int:
    """The op from which on the sequence repeats at this distance to its end; the number of ops where it does not."""
    alike = (names[length:] == names[:-length])[::-1]
    share = np.cumsum(alike) / np.arange(1, len(alike) + 1)
    good: Ints = np.flatnonzero((share >= _ALIKE) & alike)
    return len(alike) - 1 - int(good[-1]) if len(good) else len(names)


def _few_others(names: Ints, first: int, long: int) -> bool:
    """Whether nearly all names of the thread are names of the loop."""
    every, inside = np.unique(names), np.unique(names[first : first + long])
    return len(every) - len(inside) <= _OTHERS * len(every)


def _is_loop(trace: Trace, rows: Ints, spans: Intervals) -> bool:
    """Whether each repetition holds a backward pass and ops besides, or a fetch from a loader."""
    events = trace.events
    host = events.of(Category.ANNOTATION, Category.CPU_OP)
    nodes = host & events.named(AUTOGRAD_NODE)
    if _in_each(events, host & events.named("enumerate(DataLoader)#"), spans):
        return True
    # The nodes of a backward pass repeat with the layers, too: then they are all that a repetition holds.
    others = np.zeros(len(events), bool)
    others[rows[~nodes[rows]]] = True
    return _in_each(events, nodes, spans) and _in_each(events, others, spans)


def _may_be_loop(trace: Trace, spans: Intervals) -> bool:
    """Whether each repetition copies to the device or launches a graph, as few models do layer by layer."""
    copies = trace.events.of(Category.MEMCPY) & trace.events.named("HtoD")
    return _in_each(trace.events, copies, spans) or _in_each(trace.events, graph_launches(trace.events), spans)


def _reads(trace: Trace, spans: Intervals) -> bool:
    """Whether each repetition reads from the device."""
    events = trace.events
    copies = events.of(Category.MEMCPY) & events.named("DtoH")
    scalars = events.of(Category.CPU_OP) & events.exactly("aten::_local_scalar_dense")
    return bool(copies.any()) and _in_each(events, scalars if scalars.any() else copies, spans)


def _in_each(events: Events, rows: Mask, spans: Intervals) -> bool:
    times = np.sort(events.start_ns[rows])
    return bool((np.searchsorted(times, spans[:, 1]) > np.searchsorted(times, spans[:, 0])).all())
