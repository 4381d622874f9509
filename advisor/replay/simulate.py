"""Plays a graph: when each node is done if only work takes time and only dependencies hold it back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from advisor.replay.edges import Floats
from advisor.replay.graph import Graph
from advisor.replay.plan import Plan

_NEVER = -np.inf
# Rounds of the cyclic replay: growth settles after two or three; more only where a queue fills slowly.
_MOST_ROUNDS = 8
_SETTLED = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
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
    alive: npt.NDArray[np.bool_]


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
        lag=graph.edges.lag.copy(),
        alive=np.ones(len(graph.edges), bool),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """Ends of all works and times of all points, ns from the start of the window."""

    work_end: Floats
    point_time: Floats


def offsets(plan: Plan, weights: Weights) -> Floats:
    """Host work between the node that each point's time derives from and the point, ns."""
    points = plan.graph.points
    total = np.cumsum(weights.lead)
    starts = np.concatenate(([True], plan.slot_of_point[1:] != plan.slot_of_point[:-1]))
    run = np.maximum.accumulate(np.where(starts, np.arange(len(points)), 0))
    # A waiting point starts a run after its own lead, which belongs to the run before it.
    return np.asarray(total - np.where(points.waits, total, total - weights.lead)[run])


class Sheet:
    """A plan with weights filled in, ready to be played from any starting state."""

    def __init__(self, plan: Plan, weights: Weights) -> None:
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
        self._fill_edges(after, own)

    def _fill_edges(self, after: Floats, own: Floats) -> None:
        """One edge of each node stands in its row; `more` holds the further ones of the few nodes that have several."""
        plan, weights, count = self.plan, self.weights, len(after)
        from_point = plan.source_point >= 0
        lag = weights.lag + np.where(from_point, self.offset[np.maximum(plan.source_point, 0)], 0.0)
        alive = np.flatnonzero(weights.alive & (plan.source_slot < plan.target))
        alive = alive[np.argsort(plan.target[alive], kind="stable")]
        target, source, lag = plan.target[alive] - plan.queues, plan.source_slot[alive], lag[alive]
        first = np.ones(len(target), bool)
        first[1:] = target[1:] != target[:-1]
        other, other_lag = np.zeros(count, np.int64), np.full(count, _NEVER)
        other[target[first]], other_lag[target[first]] = source[first], lag[first]
        self.columns = [column.tolist() for column in (plan.before, after, other, other_lag, own)]
        rest = zip(target[~first].tolist(), source[~first].tolist(), lag[~first].tolist(), strict=True)
        self.more: list[tuple[int, list[tuple[int, float]]]] = []
        for node, slot, delay in rest:
            if not self.more or self.more[-1][0] != node:
                self.more.append((node, []))
            self.more[-1][1].append((slot, delay))

    def play(self, state: list[float]) -> list[float]:
        """When every visited node is done, after the slots of `state`."""
        done = list(state)
        put = done.append
        rows = zip(*self.columns, strict=True)
        seen = 0
        for node, edges in [*self.more, (len(self.columns[0]), [])]:
            for before, after, other, lag, own in islice(rows, node - seen):
                one, two = done[before] + after, done[other] + lag
                put((one if one > two else two) + own)
            seen = node
            if edges:
                before, after, other, lag, own = next(rows)
                ready = max(done[before] + after, done[other] + lag, *(done[slot] + delay for slot, delay in edges))
                put(ready + own)
                seen += 1
        return done


def play_once(plan: Plan, weights: Weights) -> Played:
    """One pass from the state in which the window opened: what the unedited graph is checked with."""
    graph = plan.graph
    sheet = Sheet(plan, weights)
    state = [0.0] * len(graph.threads) + [_NEVER] * graph.work.queues
    first = np.flatnonzero(graph.work.first)
    for at in first[graph.work.early[first] | (graph.work.launch[first] < 0)]:
        state[len(graph.threads) + int(graph.work.queue[at])] = float(graph.work.start[at])
    done = np.array(sheet.play(state))
    return Played(done[plan.slot_of_work], done[plan.slot_of_point] + sheet.offset)


def step_ns(plan: Plan, weights: Weights) -> float:
    """Length of a step in the steady state: the window is played again and again until its growth has settled.

    Each round begins where every queue stood at the end of the one before; the slowest queue sets the pace. What was
    launched before the window has no part in it.
    """
    graph, early = plan.graph, plan.graph.work.early
    sheet = Sheet(
        plan, replace(weights, work=np.where(early, 0.0, weights.work), gap=np.where(early, 0.0, weights.gap))
    )
    state = [0.0] * plan.queues
    points = graph.points
    last_point = np.flatnonzero(np.append(points.thread[1:] != points.thread[:-1], True))
    growth = 0.0
    for number in range(_MOST_ROUNDS):
        done = np.array(sheet.play(state))
        after = done[plan.last]
        after[points.thread[last_point]] = done[plan.slot_of_point[last_point]] + sheet.offset[last_point]
        grown = float((after - np.array(state)).max())
        state = after.tolist()
        if number and abs(grown - growth) <= _SETTLED * grown:
            return grown / graph.steps
        growth = grown
    return growth / graph.steps
