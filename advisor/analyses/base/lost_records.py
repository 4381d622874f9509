"""Work of the device whose records never reached the file: launches that have none, where launches have theirs."""

from __future__ import annotations

import numpy as np

from advisor.analyses.base.cadence import NOTABLE
from advisor.analyses.base.classify import graph_launches, launch_calls
from advisor.analyses.base.launched import Launched
from advisor.trace.events import Category, Ints, Mask, Trace
from advisor.trace.intervals import Intervals


def lost_launches(trace: Trace, launched: Launched) -> Ints:
    """Launches of kernels without a kernel in the trace: CUPTI dropped a buffer of its records.

    In 19 real traces every launch has its kernel. Where most have none, calls and work are not linked. What is captured
    into a graph runs when the graph is launched, and graphs may be recorded as a whole.
    """
    events = trace.events
    of_host = events.of(Category.RUNTIME)
    opened = np.flatnonzero(of_host & events.named("StreamBeginCapture"))
    closed = np.flatnonzero(of_host & events.named("StreamEndCapture"))
    calls = np.flatnonzero(launch_calls(events) & ~graph_launches(events))
    starts = events.start_ns[calls]
    captures = np.searchsorted(events.start_ns[opened], starts) > np.searchsorted(events.start_ns[closed], starts)
    calls = calls[~captures]
    linked = np.zeros(len(events), bool)
    linked[launched.launch[launched.launch >= 0]] = True
    found = calls[~linked[calls]]
    return found if 2 * len(found) < len(calls) else found[:0]


def with_lost_work(trace: Trace, launched: Launched, spans: Intervals) -> Mask:
    """Steps that lost more than a twentieth of their launches' work; none if fewer than two steps lost less."""
    events = trace.events

    def per_step(rows: Ints) -> Ints:
        step = np.searchsorted(spans[:, 0], events.start_ns[rows], side="right") - 1
        inside = (step >= 0) & (events.start_ns[rows] < spans[np.maximum(step, 0), 1])
        return np.bincount(step[inside], minlength=len(spans))

    lost: Mask = per_step(lost_launches(trace, launched)) > NOTABLE * per_step(np.flatnonzero(launch_calls(events)))
    return lost if (~lost).sum() > 1 else np.zeros(len(spans), bool)
