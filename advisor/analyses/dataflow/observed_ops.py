"""Ops of the profiled steps by their place in the step that was observed after the window."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import parents
from advisor.analyses.base.steps import Steps
from advisor.analyses.dataflow.judged_steps import JudgedSteps
from advisor.capture.record import JudgedOps
from advisor.computed import Missing
from advisor.trace.events import Category, Events, Ints, Trace

_NOT_ASKED = "it was not recorded which tensors ops read; use `advisor run`, and train on after the profiled steps"
# An op that torch dispatches; nodes of the backward pass and functions of Python are named otherwise.
_OP = re.compile(r"\w+::[\w.]+")
# Where fewer of the ops of the shorter one are found in the other, the observed and a profiled step are of two kinds. A
# step that accumulates gradients lacks the ops of the optimizer, which the observed one may have.
_MOST_OPS = 0.5
# Where fewer of the profiled steps are of the observed one's kind, nothing is said of them.
_MOST_STEPS = 0.5


class ObservedOps(Struct, frozen=True, eq=False):
    """Events of the profiled steps that correspond to the ops of the observed step.

    seen    what was observed
    rows    the outermost ops of the loop's thread, in order of start
    places  for each step (ops of the observed step,) their events, -1 if not known
    share   share of profiled steps in which the ops were found
    """

    seen: JudgedOps
    rows: Ints
    places: tuple[Ints, ...]
    share: float

    def rows_at(self, ats: Sequence[int]) -> Ints:
        """Events of these places of the observed step in all profiled steps that have them, in order of start."""
        found = [rows[np.asarray(ats, np.int64)] for rows in self.places] if len(ats) else []
        rows = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        return rows[rows >= 0]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, judged: JudgedSteps) -> ObservedOps:
        """The events. Raises Missing if no steps were observed, or if the profiled steps ran different ops."""
        seen = judged.seen
        if not seen.ops:
            raise Missing(seen.why or _NOT_ASKED)
        known = (seen.again, seen.constant, seen.unread, seen.casts, seen.waits, seen.messages)
        terms = (seen.penalties, seen.slopes, seen.zero_terms, seen.same, seen.statistics)
        parts = (seen.diagonals, seen.blocks, seen.picked, seen.coordinates, seen.pair_products)
        every = (*known, *terms, *parts, seen.layers, seen.passes)
        if not any(every):
            return cls(seen, np.empty(0, np.int64), (), 1.0)
        events = trace.events
        rows = dispatched(events, steps)
        code = _codes(events, seen)
        wanted = np.asarray(seen.ops, np.int64)
        step = steps.step_of(events.start_ns[rows])
        by_step = [rows[step == number] for number in range(steps.count)]
        found = tuple(_place(code[events.name[mine]], mine, wanted) for mine in by_step)
        alike = [(at >= 0).sum() > _MOST_OPS * min(len(mine), len(at)) for at, mine in zip(found, by_step, strict=True)]
        share = float(np.mean(alike)) if alike else 0.0
        if share < _MOST_STEPS:
            raise Missing("the observed step ran different ops than the profiled steps")
        return cls(seen, rows, found, share)


def dispatched(events: Events, steps: Steps) -> Ints:
    """Outermost dispatched ops of the loop's thread, by start."""
    ops = events.rows_with(events.names_where(_OP.fullmatch, Category.CPU_OP))
    ops &= events.of(Category.CPU_OP) & (events.thread == steps.main_thread)
    return np.flatnonzero(ops & (parents(events, ops) < 0))


def _codes(events: Events, seen: JudgedOps) -> Ints:
    """For each name of the trace its index among the recorded ones, -1 for others."""
    index = {name: at for at, name in enumerate(seen.names)}
    return np.array([index.get(name, -1) for name in events.names], np.int64)


def _place(names: Ints, rows: Ints, wanted: Ints) -> Ints:
    """The row of each recorded op in one step, -1 where it is not known.

    All in their order where the step ran the same ops, else those whose name both have as often.
    """
    if np.array_equal(names, wanted):
        return rows
    found = np.full(len(wanted), -1, np.int64)
    for name in np.unique(wanted).tolist():
        here, there = np.flatnonzero(names == name), np.flatnonzero(wanted == name)
        if len(here) == len(there):
            found[there] = rows[here]
    return found
