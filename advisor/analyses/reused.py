"""Ops of the profiled steps that computed what was there already."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from advisor.analyses.nesting import parents
from advisor.analyses.steps import Steps
from advisor.capture.record import RankRecord
from advisor.capture.record import Reused as Recorded
from advisor.computed import Missing
from advisor.trace.events import Category, Events, Ints, Trace

_NOT_ASKED = "which tensors ops read was not recorded; capture the run with `advisor run` of this version"
# An op that torch dispatches; nodes of the backward pass and functions of Python are named otherwise.
_OP = re.compile(r"\w+::[\w.]+")
# Where fewer of the profiled steps run the ops of the observed one, it was another kind of step.
_MOST_STEPS = 0.5

# What `backward()` fills the gradient of a loss with, and what its nodes are called.
_ROOT = "aten::ones_like"
_NODE = "autograd::engine::evaluate_function"


@dataclass(frozen=True, slots=True, eq=False)
class Reused:
    """Rows of ops on the loop's thread, in the profiled steps that ran the ops of the observed step.

    ops       the outermost ops of these steps, in order of start
    again     of them those that computed, from the same values, what `first` had computed in the same step
    first     for each of `again` the row of that earlier op
    constant  of them those that read nothing but numbers of the script and tensors that nothing writes
    share     of the profiled steps those in which the ops were found
    """

    ops: Ints
    again: Ints
    first: Ints
    constant: Ints
    share: float

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, record: RankRecord) -> Reused:
        """The rows. Raises Missing where nobody looked, or what was seen is not what the profiled steps ran."""
        seen = record.reused
        if seen is None or not seen.ops:
            raise Missing((seen.why if seen is not None else "") or _NOT_ASKED)
        if not seen.again and not seen.constant:
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, nothing, nothing, 1.0)
        events = trace.events
        rows = _outermost(events, steps)
        code = _codes(events, seen)
        wanted = np.asarray(seen.ops, np.int64)
        again = np.asarray(seen.again, np.int64).reshape(-1, 2)
        constant = np.asarray(seen.constant, np.int64)
        found = [_place(code[events.name[mine]], mine, wanted) for mine in _by_step(events, rows, steps)]
        pairs = [at[again] for at in found]
        pairs = [one[(one >= 0).all(axis=1)] for one in pairs]
        lasting = [one[one >= 0] for one in (at[constant] for at in found)]
        share = float(np.mean([(at >= 0).mean() > _MOST_STEPS for at in found])) if found else 0.0
        if share < _MOST_STEPS:
            raise Missing("the step that was observed ran other ops than the profiled ones")
        both, constant = np.concatenate(pairs), np.concatenate(lasting)
        roots = _roots(events, rows)
        both, constant = both[~np.isin(both[:, 0], roots)], constant[~np.isin(constant, roots)]
        return cls(rows, both[:, 0], both[:, 1], constant, share)


def _outermost(events: Events, steps: Steps) -> Ints:
    """Dispatched ops of the loop's thread that no other is around, by start."""
    ops = events.rows_with(events.names_where(_OP.fullmatch, Category.CPU_OP))
    ops &= events.of(Category.CPU_OP) & (events.thread == steps.main_thread)
    return np.flatnonzero(ops & (parents(events, ops) < 0))


def _roots(events: Events, rows: Ints) -> Ints:
    """The fills by which `backward()` makes the first gradient: nobody can keep those, nor what starts the engine."""
    fills = rows[events.exactly(_ROOT)[rows]]
    nodes = events.start_ns[np.flatnonzero(events.named(_NODE))]
    if not len(nodes):
        return fills[:0]
    ends, starts = events.end_ns[fills], np.append(events.start_ns[rows], np.iinfo(np.int64).max)
    node = np.append(nodes, np.iinfo(np.int64).max)[np.searchsorted(nodes, ends)]
    return fills[node < starts[np.searchsorted(starts[:-1], ends)]]


def _codes(events: Events, seen: Recorded) -> Ints:
    """For each name of the trace its index among the recorded ones, -1 for others."""
    index = {name: at for at, name in enumerate(seen.names)}
    return np.array([index.get(name, -1) for name in events.names], np.int64)


def _by_step(events: Events, rows: Ints, steps: Steps) -> list[Ints]:
    step = steps.step_of(events.start_ns[rows])
    return [rows[step == number] for number in range(steps.count)]


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
