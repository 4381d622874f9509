"""Plays a graph: when each node is done if only work takes time and only dependencies hold it back."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.arrays import Floats, Mask
from advisor.replay.graph import Graph
from advisor.replay.play_order import Held, PlayOrder
from advisor.replay.stretches import Rows, Stretch, Walk

_NEVER = -np.inf
# Rounds of the cyclic replay: growth settles after two or three; more only where a queue fills slowly.
_MOST_ROUNDS = 8
_SETTLED = 1e-4


class Weights(Struct, frozen=True, eq=False):
    """The numbers of a graph that edits change. ns.

    work, gap    each work's duration and the pause before it when it was queued
    lead, tail   each point's host work before and after what it waits for
    lag, alive   each edge's delay, and whether it still holds
    """

    work: Floats
    gap: Floats
    lead: Floats
    tail: Floats
    lag: Floats
    alive: Mask


def weights_of(graph: Graph) -> Weights:
    """The weights of the unedited graph."""
    gap = np.full(len(graph.work.row), graph.delays.queue)
    gap[graph.work.first] = 0.0
    gap[graph.loader :] = 0.0
    return Weights(
        work=graph.work.dur.astype(float),
        gap=gap,
        lead=graph.points.lead.astype(float),
        tail=graph.points.tail.astype(float),
        lag=graph.edges.lag,
        alive=np.ones(len(graph.edges), bool),
    )


class Played(Struct, frozen=True, eq=False):
    """Ends of all works and times of all points, ns from the start of the window."""

    work_end: Floats
    point_time: Floats


def offsets(plan: PlayOrder, weights: Weights) -> Floats:
    """Host work between the node that each point's time derives from and the point, ns."""
    points = plan.graph.points
    total = np.cumsum(weights.lead)
    # A waiting point starts a run after its own lead, which belongs to the run before it.
    return np.asarray(total - np.where(points.waits, total, total - weights.lead)[plan.run])


class Sheet:
    """A plan with weights filled in, ready to be played from any starting state."""

    def __init__(self, plan: PlayOrder, weights: Weights) -> None:
        count = len(plan.order)
        self.plan, self.weights = plan, weights
        self.offset = offsets(plan, weights)
        after, own = np.zeros(count), np.zeros(count)
        at = plan.slot_of_work - plan.queues
        after[at], own[at] = weights.gap, weights.work
        points = plan.graph.points
        waiting = np.flatnonzero(points.waits)
        at = plan.slot_of_point[waiting] - plan.queues
        same = (waiting > 0) & (points.thread[waiting - 1] == points.thread[waiting])
        after[at] = np.where(same, self.offset[waiting - 1], 0.0) + weights.lead[waiting]
        own[at] = weights.tail[waiting]
        rows = self._rows(after, own)
        self.pieces = [(piece, Stretch(piece, rows) if piece.chains else Walk(piece, rows)) for piece in plan.pieces]

    def _rows(self, after: Floats, own: Floats) -> Rows:
        """What holds each node back: what stands before it in its queue, and the edges that are alive."""
        plan, alive = self.plan, self.weights.alive
        held = plan.held
        if not alive.all():
            some = plan.forward[np.flatnonzero(alive[plan.forward])]
            held = Held.by(some, plan.target - plan.queues, plan.source_slot, len(after))
        # What does not derive from a point has -1 for it: the entry behind the last.
        lag = self.weights.lag + np.append(self.offset, 0.0).take(plan.source_point)
        other_lag = np.full(len(after), _NEVER)
        other_lag[held.node] = lag[held.edge]
        return Rows(plan.before, after, held.other, other_lag, own, held.more, held.more_slot, lag[held.more_edge])

    def play(self, state: Floats) -> Floats:
        """When every visited node is done, after the slots of `state`."""
        done = np.concatenate((state, np.empty(len(self.plan.order))))
        for piece, part in self.pieces:
            part.play(done, self.plan.queues + piece.start)
        return done


def play_once(plan: PlayOrder, weights: Weights) -> Played:
    """One pass from the state in which the window opened: what the unedited graph is checked with."""
    return _first_pass(Sheet(plan, weights))


def step_ns(plan: PlayOrder, weights: Weights) -> float:
    """Length of a step in the steady state: the window is played again and again until its growth has settled.

    Each round begins where every queue stood at the end of the one before; the slowest queue sets the pace. What was
    launched before the window has no part in it.
    """
    return _steady_ns(Sheet(plan, _without_early(plan, weights)))


def play_both(plan: PlayOrder, weights: Weights) -> tuple[Played, float]:
    """What `play_once` and `step_ns` give, for less than both cost."""
    sheet = Sheet(plan, weights)
    without = _without_early(plan, weights)
    return _first_pass(sheet), _steady_ns(sheet if without is weights else Sheet(plan, without))


def _without_early(plan: PlayOrder, weights: Weights) -> Weights:
    early = plan.graph.work.early
    if not early.any():
        return weights
    return replace(weights, work=np.where(early, 0.0, weights.work), gap=np.where(early, 0.0, weights.gap))


def _first_pass(sheet: Sheet) -> Played:
    plan, graph = sheet.plan, sheet.plan.graph
    state = np.zeros(plan.queues)
    state[len(graph.threads) :] = _NEVER
    first = np.flatnonzero(graph.work.first)
    at = first[graph.work.early[first] | (graph.work.launch[first] < 0)]
    state[len(graph.threads) + graph.work.queue[at]] = graph.work.start[at]
    done = sheet.play(state)
    return Played(done[plan.slot_of_work], done[plan.slot_of_point] + sheet.offset)


def _steady_ns(sheet: Sheet) -> float:
    plan, graph = sheet.plan, sheet.plan.graph
    state = np.zeros(plan.queues)
    points = graph.points
    last_point = np.flatnonzero(np.append(points.thread[1:] != points.thread[:-1], True))
    growth = 0.0
    for number in range(_MOST_ROUNDS):
        done = sheet.play(state)
        after = done[plan.last]
        after[points.thread[last_point]] = done[plan.slot_of_point[last_point]] + sheet.offset[last_point]
        for work, stream in graph.across:
            slot = len(graph.threads) + stream
            after[slot] = max(after[slot], done[plan.slot_of_work[work]])
        grown = float((after - state).max())
        state = after
        if number and abs(grown - growth) <= _SETTLED * grown:
            return grown / graph.steps
        growth = grown
    return growth / graph.steps
