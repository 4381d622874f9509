"""Where steps begin and end in a trace: marked by the profiler, by an optimizer, or by what is repeated."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.analyses.base.optimizer_closures import closure_spans
from advisor.model import StepSource
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import EMPTY, Intervals, overlap_of_each
from advisor.trace.op_names import AUTOGRAD_NODE

_OPTIMIZER = "Optimizer.step#"
# A step between two optimizer steps needs both.
_FEWEST_OPTIMIZER_ROWS = 3
# Two may be alike by chance.
_FEWEST_ITERATIONS = 3
# Traces count in µs, with or without digits behind the point: rows that touch may overlap by what was rounded.
_ROUNDING_NS = 1_000


class StepRows(Struct, frozen=True, eq=False):
    """Whole steps in order, without overlap.

    labels   a name for each
    thread   index into `events.threads` of the thread that runs the loop
    cut_off  whether a last `ProfilerStep` row was left out, because nothing was called in it
    """

    spans: Intervals
    labels: tuple[str, ...]
    source: StepSource
    thread: int
    cut_off: bool = False


def marked_by_profiler(trace: Trace) -> StepRows | None:
    """The `ProfilerStep#N` rows of one thread, without rows that repeat or overlap an earlier step."""
    events = trace.events
    is_step = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("ProfilerStep#") & (events.dur_ns > 0)
    rows = np.flatnonzero(is_step)
    if not len(rows):
        return None
    threads, number = np.unique(events.thread[rows], return_counts=True)
    rows = rows[events.thread[rows] == threads[np.argmax(number)]]
    reach = np.maximum.accumulate(events.end_ns[rows])
    apart: Mask = np.concatenate(([True], events.start_ns[rows[1:]] >= reach[:-1] - _ROUNDING_NS))
    rows = rows[apart]
    cut_off = len(rows) > 1 and _is_empty(events, int(rows[-1]))
    return _of_rows(events, rows[:-1] if cut_off else rows, "user", cut_off)


def marked_by_closures(events: Events) -> StepRows | None:
    """Steps whose optimizer computes the loss itself, from one optimizer step to the next.

    Capture cannot mark them: between two of them it hears nothing. The last one's end is not known.
    """
    rows = _optimizer_rows(events)
    inside = overlap_of_each(events.start_ns[rows], events.end_ns[rows], closure_spans(events))
    rows = rows[inside > 0]
    rows = rows[events.thread[rows] == events.thread[rows[0]]] if len(rows) else rows
    if len(rows) < 2:
        return None
    starts = events.start_ns[rows]
    spans = np.column_stack((starts[:-1], starts[1:]))
    return StepRows(spans, _labels(events, rows[:-1]), "optimizer", int(events.thread[rows[0]]))


def marked_by_optimizer(events: Events) -> StepRows | None:
    """From the end of one `Optimizer.step#` row to the end of the next of that name; what lies before is none.

    Where several optimizers take turns, those of the first one's name. Where names are the same, their backward passes
    tell them apart (`_whole_iterations`); where these are alike, or differ from step to step, each is a step.
    """
    rows = _optimizer_rows(events)
    if not len(rows):
        return None
    rows = rows[(events.thread[rows] == events.thread[rows[0]]) & (events.name[rows] == events.name[rows[0]])]
    if len(rows) < _FEWEST_OPTIMIZER_ROWS:
        return None
    rows = _whole_iterations(events, rows)
    ends = events.end_ns[rows]
    spans = np.column_stack((ends[:-1], ends[1:]))
    return StepRows(spans, _labels(events, rows[1:]), "optimizer", int(events.thread[rows[0]]))


def _whole_iterations(events: Events, rows: Ints) -> Ints:
    """Of the steps of optimizers that take turns the last one of each iteration; all rows where none take turns.

    Two losses of different networks (an actor and a critic, a generator and a discriminator) record different nodes of
    autograd, in the same turns in each iteration. An evaluation or a log every few steps records none, and leaves the
    backward passes alike. An iteration begins with what takes longest, as it holds the batch.
    """
    nodes = np.flatnonzero(events.of(Category.ANNOTATION, Category.CPU_OP) & events.named(AUTOGRAD_NODE))
    edges = np.searchsorted(events.start_ns[nodes], events.end_ns[rows])
    names = events.name[nodes]
    passes = [names[first:last].tobytes() for first, last in pairwise(edges.tolist())]
    for turns in range(2, len(passes) // _FEWEST_ITERATIONS + 1):
        if len(set(passes[:turns])) > 1 and passes[turns:] == passes[:-turns]:
            took = np.diff(events.end_ns[rows])[: len(passes) // turns * turns].reshape(-1, turns)
            whole: Ints = rows[int(np.median(took, axis=0).argmax()) :: turns]
            return whole
    return rows


def _optimizer_rows(events: Events) -> Ints:
    found: Ints = np.flatnonzero(events.of(Category.ANNOTATION, Category.CPU_OP) & events.named(_OPTIMIZER))
    return found


def _of_rows(events: Events, rows: Ints, source: StepSource, cut_off: bool) -> StepRows:
    spans = np.column_stack((events.start_ns[rows], events.end_ns[rows])) if len(rows) else EMPTY
    spans[1:, 0] = np.maximum(spans[1:, 0], spans[:-1, 1])
    return StepRows(spans, _labels(events, rows), source, int(events.thread[rows[0]]), cut_off)


def _labels(events: Events, rows: Ints) -> tuple[str, ...]:
    return tuple(events.text(row) for row in rows.tolist())


def _is_empty(events: Events, row: int) -> bool:
    """Whether nothing was called in a step: the profiler opened it after the last batch, and stopped.

    What the device still works on then belongs to the steps that launched it.
    """
    inside = (events.start_ns >= events.start_ns[row]) & (events.start_ns < events.end_ns[row])
    called = events.of(Category.CPU_OP, Category.RUNTIME)
    called[row] = False
    return not (inside & called).any()
