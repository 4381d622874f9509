"""Work of the device whose records never reached the file: launches that have none, where launches have theirs."""

from __future__ import annotations

import numpy as np

from advisor.analyses.base.cadence import NOTABLE
from advisor.analyses.base.classify import graph_launches, launch_calls
from advisor.analyses.base.launched import Launched
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import Intervals


def lost_launches(trace: Trace, launched: Launched) -> Ints:
    """Launches of kernels without a kernel in the trace: CUPTI dropped a buffer of its records.

    In 19 real traces every launch has its kernel. Where most work has no launch, calls and work are not linked. What is
    captured into a graph runs when the graph is launched, and graphs may be recorded as a whole.
    """
    events = trace.events
    known = launched.launch >= 0
    if 2 * known.sum() < trace.device_work.sum():
        return np.zeros(0, np.int64)
    calls = _single_launches(events)
    linked = np.zeros(len(events), bool)
    linked[launched.launch[known]] = True
    return calls[~linked[calls]]


def why_not_measured(trace: Trace, launched: Launched) -> str:
    """Why the work of the device in the trace says nothing about the device, "" if it does: most of it was lost."""
    lost, calls = len(lost_launches(trace, launched)), len(_single_launches(trace.events))
    if 2 * lost <= calls:
        return ""
    return f"the trace has no kernel for {lost:,} of {calls:,} launches, so when the device works is not known"


def _single_launches(events: Events) -> Ints:
    """Calls that start a kernel each: not those of graphs, nor what a graph captures."""
    of_host = events.of(Category.RUNTIME)
    opened = np.flatnonzero(of_host & events.named("StreamBeginCapture"))
    closed = np.flatnonzero(of_host & events.named("StreamEndCapture"))
    calls = np.flatnonzero(launch_calls(events) & ~graph_launches(events))
    starts = events.start_ns[calls]
    captures = np.searchsorted(events.start_ns[opened], starts) > np.searchsorted(events.start_ns[closed], starts)
    return calls[~captures]


def with_lost_work(trace: Trace, launched: Launched, spans: Intervals) -> Mask:
    """Steps that lost more than a twentieth of their launches' work; none if fewer than two steps lost less."""
    events = trace.events

    def per_step(rows: Ints) -> Ints:
        step = np.searchsorted(spans[:, 0], events.start_ns[rows], side="right") - 1
        inside = (step >= 0) & (events.start_ns[rows] < spans[np.maximum(step, 0), 1])
        return np.bincount(step[inside], minlength=len(spans))

    lost: Mask = per_step(lost_launches(trace, launched)) > NOTABLE * per_step(np.flatnonzero(launch_calls(events)))
    return lost if (~lost).sum() > 1 else np.zeros(len(spans), bool)
