"""A graph in an order in which it can be played."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.replay.graph import Graph
from advisor.replay.stretches import Piece, pieces
from advisor.trace.events import Ints


class Held(Struct, frozen=True, eq=False):
    """Edges by the nodes that they hold back: one of each node, then the further ones of the few that have several.

    node, edge   visited nodes that wait, and an edge of each
    other        position of what every visited node waits for by that edge, 0 where it has none
    more, more_edge, more_slot   the further edges: node, edge and position of what it waits for, by node
    """

    node: Ints
    edge: Ints
    other: Ints
    more: Ints
    more_edge: Ints
    more_slot: Ints

    @classmethod
    def by(cls, edges: Ints, target: Ints, source_slot: Ints, count: int) -> Held:
        """How some edges hold `count` nodes back; they are in the order of their targets, which all edges name."""
        node = target[edges]
        first = np.ones(len(node), bool)
        first[1:] = node[1:] != node[:-1]
        one, further = np.flatnonzero(first), np.flatnonzero(~first)
        other = np.zeros(count, np.int64)
        other[node[one]] = source_slot[edges[one]]
        return cls(node[one], edges[one], other, node[further], edges[further], source_slot[edges[further]])


class PlayOrder(Struct, frozen=True, eq=False):
    """A graph prepared for playing: only works and waiting points are visited, in an order that respects all edges.

    Positions: first one slot per queue (where it stands when the pass begins), then the visited nodes in order.
    slot_of_work, slot_of_point   position of each work, and of the visited point that each point's time derives from
    before       position of the predecessor in the same queue, for each visited node
    target, source_slot   of each edge, as positions;  source_point: the point whose offset adds to it, -1 for works
    forward      edges whose source is visited before their target, in the order of the targets
    held         how these edges hold the visited nodes back
    run          for each point the first one of those whose time derives from the same position
    last         position of the last node of each queue
    pieces       the visited nodes, cut where one waits for another queue
    """

    graph: Graph
    order: Ints
    slot_of_work: Ints
    slot_of_point: Ints
    before: Ints
    target: Ints
    source_slot: Ints
    source_point: Ints
    forward: Ints
    held: Held
    run: Ints
    last: Ints
    pieces: tuple[Piece, ...]

    @property
    def queues(self) -> int:
        """Number of queues: host threads, then streams."""
        return len(self.graph.threads) + self.graph.work.queues


def prepare(graph: Graph) -> PlayOrder:
    """Numbers the nodes in an order in which everything stands after what it waits for."""
    works, points, edges = len(graph.work.row), graph.points, graph.edges
    threads = len(graph.threads)
    queues = threads + graph.work.queues
    anchor = _anchors(graph)  # the node (works, points, then queue slots) that a point's time derives from
    visited_points = np.flatnonzero(points.waits)
    visited = np.concatenate((np.arange(works), works + visited_points))
    start_of = works + len(points)  # queue slots are numbered after all nodes
    previous = np.concatenate(([0], np.arange(works - 1))).astype(np.int64)[:works]
    previous[graph.work.first] = start_of + threads + graph.work.queue[graph.work.first]
    point_before = visited_points - 1
    has_before = (point_before >= 0) & (points.thread[point_before] == points.thread[visited_points])
    before_point = np.where(has_before, anchor[np.maximum(point_before, 0)], start_of + points.thread[visited_points])
    before = np.concatenate((previous, before_point)).astype(np.int64)
    is_point = edges.source >= works
    source = np.where(is_point, anchor[np.maximum(edges.source - works, 0)], edges.source)
    order = _by_time(graph, visited, before, edges.target, source)
    if order is None:
        order = _topological(visited, before, edges.target, source, start_of, start_of + queues)
    position = _positions(order, start_of, queues)
    forward = np.flatnonzero(position[source] < position[edges.target])
    by_queue, parts = _pieces(graph, order, *(position[ends[forward]] - queues for ends in (edges.target, source)))
    order = order[by_queue]
    position = _positions(order, start_of, queues)
    before_of = np.full(start_of, -1, np.int64)
    before_of[visited] = before
    target, source_slot, slot_of_point = position[edges.target], position[source], position[anchor]
    forward = forward[np.argsort(target[forward], kind="stable")]
    last = np.arange(queues)
    if works:
        ends = np.append(np.flatnonzero(graph.work.first)[1:], works) - 1
        last[threads + graph.work.queue[ends]] = position[ends]
    return PlayOrder(
        graph=graph,
        order=order,
        slot_of_work=position[:works].copy(),  # not a view: the rest would be kept with it
        slot_of_point=slot_of_point,
        before=position[before_of[order]],
        target=target,
        source_slot=source_slot,
        source_point=np.where(is_point, edges.source - works, -1),
        forward=forward,
        held=Held.by(forward, target - queues, source_slot, len(order)),
        run=_runs(slot_of_point),
        last=last,
        pieces=parts,
    )


def _runs(slot_of_point: Ints) -> Ints:
    first = np.concatenate(([True], slot_of_point[1:] != slot_of_point[:-1]))
    return np.asarray(np.maximum.accumulate(np.where(first, np.arange(len(slot_of_point)), 0)))


def _positions(order: Ints, start_of: int, queues: int) -> Ints:
    """Position of each node: first one slot per queue, then the visited nodes in order; -1 for the others."""
    position = np.full(start_of + queues, -1, np.int64)
    position[start_of:] = np.arange(queues)
    position[order] = queues + np.arange(len(order))
    return position


def _pieces(graph: Graph, order: Ints, target: Ints, source: Ints) -> tuple[Ints, tuple[Piece, ...]]:
    """The pieces of an order; edges as node numbers, negative sources being where queues stand at the start."""
    queue = np.concatenate((len(graph.threads) + graph.work.queue, graph.points.thread))[order]
    latest = np.full(len(order), -1, np.int64)
    np.maximum.at(latest, target, source)
    return pieces(latest, queue)


def _anchors(graph: Graph) -> Ints:
    """For each point the node that its time derives from: the last waiting point of its thread, itself included."""
    points, works = graph.points, len(graph.work.row)
    first = np.concatenate(([True], points.thread[1:] != points.thread[:-1]))
    at = np.maximum.accumulate(np.where(points.waits | first, np.arange(len(points)), 0))
    return np.where(points.waits[at], works + at, works + len(points) + points.thread)


def _by_time(graph: Graph, visited: Ints, before: Ints, target: Ints, source: Ints) -> Ints | None:
    """The visited nodes in the order in which the trace saw them done; None where that breaks a dependency."""
    when = np.concatenate((graph.work.end, graph.points.time))
    # A blocking copy's call may return some µs before its data has moved, by the two clocks.
    held = np.flatnonzero((target >= len(graph.work.row)) & (source < len(when)))
    np.maximum.at(when, target[held], when[source[held]])
    order = visited[np.argsort(when[visited], kind="stable")]
    position = np.full(len(when) + len(graph.threads) + graph.work.queues, -1, np.int64)
    position[order] = np.arange(len(order))
    kept = (position[before] < position[visited]).all() and (position[source] < position[target]).all()
    return order if kept else None


def _topological(visited: Ints, before: Ints, target: Ints, source: Ints, first_slot: int, size: int) -> Ints:
    """The visited nodes in an order that respects the order of every queue and, but for circles, every edge.

    Contradictory times in a trace can make nodes wait for each other in a circle; then the first node whose queue is
    ready goes on, and the edges that it ignores have their source behind it.
    """
    heads, tails = np.concatenate((before, source)), np.concatenate((visited, target))
    real = heads < first_slot
    heads, tails = heads[real], tails[real]
    waiting = np.bincount(tails, minlength=size).tolist()
    by_head = np.argsort(heads, kind="stable")
    follower = tails[by_head].tolist()
    begin = np.searchsorted(heads[by_head], np.arange(size + 1)).tolist()
    queue_before = dict(zip(visited.tolist(), before.tolist(), strict=True))
    ready = [node for node in visited.tolist() if not waiting[node]]
    placed = bytearray(size)
    done: list[int] = []
    while len(done) < len(queue_before):
        if not ready:
            ready.append(_first_of_circle(queue_before, placed, first_slot))
        node = ready.pop()
        if placed[node]:
            continue
        placed[node] = 1
        done.append(node)
        for next_node in follower[begin[node] : begin[node + 1]]:
            waiting[next_node] -= 1
            if not waiting[next_node]:
                ready.append(next_node)
    return np.array(done, np.int64)


def _first_of_circle(queue_before: dict[int, int], placed: bytearray, first_slot: int) -> int:
    """A node that is not placed yet while what stands before it in its queue is."""
    return next(
        node for node, before in queue_before.items() if not placed[node] and (before >= first_slot or placed[before])
    )
