"""Changes of a graph: what a fix does to the work and the waits of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.replay.edges import Why
from advisor.replay.graph import Graph
from advisor.replay.simulate import Weights
from advisor.trace.events import Category, Events, Floats, Ints, Mask
from advisor.trace.intervals import EMPTY, Intervals, overlap_of_each, starts_in, union
from advisor.trace.numbers import among, distinct

What = Literal["remove", "scale", "move", "unsync", "fuse"]
_HOST = np.array((Category.CPU_OP, Category.ANNOTATION, Category.PYTHON, Category.RUNTIME), np.int8)


class Edit(Struct, frozen=True, eq=False):
    """One change. Make it with the functions below; edits may be combined in any order.

    what      remove | scale | move | unsync | fuse
    rows      the events concerned: host rows (with everything inside them), device rows, fetches
    spans     or stretches of the loop's thread, absolute ns
    factor    share of the time that stays
    lanes     `move`: how many workers share what leaves the critical path
    pause_ns  `fuse`: pauses of at most so long between neighbours of a thread go with the rows
    """

    what: What
    rows: Ints
    spans: Intervals
    factor: float = 0.0
    lanes: float = 1.0
    pause_ns: int = 0


def remove(rows: Ints) -> Edit:
    """The rows no longer happen: neither their host time, nor the work they launch, nor the waits inside them."""
    return Edit("remove", np.asarray(rows, np.int64), EMPTY)


def remove_time(spans: Intervals) -> Edit:
    """The loop's thread no longer spends these stretches (absolute ns), nor waits or launches in them."""
    return Edit("remove", np.empty(0, np.int64), spans)


def scale(rows: Ints, factor: float) -> Edit:
    """The rows take `factor` of their time: device work its own, host rows their span, fetches the workers' part.

    Ops launch what they did: name that too (`StepOps.launched`) where it is to become less.
    """
    return Edit("scale", np.asarray(rows, np.int64), EMPTY, factor)


def scale_time(spans: Intervals, factor: float) -> Edit:
    """The loop's thread spends `factor` of its time in these stretches (absolute ns)."""
    return Edit("scale", np.empty(0, np.int64), spans, factor)


def substitute(rows: Ints, now_us: float, then_us: float) -> Edit:
    """The rows take what was measured elsewhere: `then_us` instead of `now_us`, both totals of the same rows."""
    return scale(rows, max(then_us, 0.0) / now_us if now_us > 0 else 1.0)


def move(rows: Ints, lanes: float = 1.0) -> Edit:
    """The rows leave the critical path: `lanes` workers (or a stream of its own, 1) do them meanwhile.

    A step is then never shorter than the moved work divided by the lanes.
    """
    return Edit("move", np.asarray(rows, np.int64), EMPTY, 0.0, lanes)


def unsync(rows: Ints) -> Edit:
    """The host no longer waits for the device in these calls, or in calls inside these ops."""
    return Edit("unsync", np.asarray(rows, np.int64), EMPTY, 1.0)


def fuse(rows: Ints, into: int = 1, pause_us: float = 0.0) -> Edit:
    """The host rows become `into` calls: their launches are dropped, the work on the device keeps its duration.

    pause_us: what the host does between two rows goes with them where it takes no longer, as Python between two ops.
    """
    rows = np.asarray(rows, np.int64)
    factor = min(into / max(len(rows), 1), 1.0)
    return Edit("fuse", rows, EMPTY, factor, pause_ns=round(1e3 * pause_us))


class Edited(Struct, frozen=True, eq=False):
    """Each of several weights after edits, and the least that a step can take for work that was moved aside, ns."""

    weights: Sequence[Weights]
    floor_ns: float


class Editor:
    """Applies edits to the weights of one graph."""

    def __init__(self, graph: Graph, events: Events, opens: int, late: Intervals) -> None:
        self.graph, self.events, self.opens = graph, events, opens
        self._thread_of_point = np.array(graph.threads, np.int64)[graph.points.thread]
        self._late_ns = _late_ns(graph, late - opens)
        rows = graph.points.row
        self._call_start = np.where(rows >= 0, events.start_ns[np.maximum(rows, 0)] - opens, -1)
        self._launched_by = _launching_points(graph)

    def apply(self, weights: Sequence[Weights], edits: Sequence[Edit]) -> Edited:
        """All edits together, on each of these weights; their order does not matter.

        What is removed or moved is taken out once, however many edits name it; factors of what stays multiply.
        """
        out = [edit for edit in edits if edit.what in ("remove", "move")]
        weights = self._take_out(weights, out)
        for edit in edits:
            if edit.what == "scale":
                weights = self._scale(weights, edit)
            elif edit.what == "fuse":
                weights = self._fuse(weights, edit)
            elif edit.what == "unsync":
                weights = self._unsync(weights, edit)
        floor = max((self._moved_ns(edit) / edit.lanes for edit in edits if edit.what == "move"), default=0.0)
        return Edited(weights, floor)

    def _take_out(self, several: Sequence[Weights], edits: Sequence[Edit]) -> Sequence[Weights]:
        """Host time, launched work and waits of everything that is removed or moved."""
        if not edits:
            return several
        host = self._spans_by_thread(edits)
        kept, inside = 1 - self._share(host), self._inside(host)
        rows = np.concatenate([edit.rows for edit in edits])
        gone = self._among(rows)
        # A removed launch takes its work along; what is moved to another thread still launches its own.
        removed = self._inside(self._spans_by_thread([edit for edit in edits if edit.what == "remove"]))
        launched = self._launched_by
        gone |= (launched >= 0) & removed[np.maximum(launched, 0)]
        cut = self._edges_into(inside)
        return [
            replace(
                weights,
                lead=weights.lead * kept,
                tail=np.where(inside, 0.0, weights.tail),
                work=np.where(gone, 0.0, weights.work),
                gap=np.where(gone, 0.0, weights.gap),
                alive=weights.alive & ~cut,
            )
            for weights in several
        ]

    def _scale(self, several: Sequence[Weights], edit: Edit) -> Sequence[Weights]:
        host = self._spans_by_thread([edit])
        kept, inside = 1 - self._share(host) * (1 - edit.factor), self._inside(host)
        mine = self._among(edit.rows)
        return [
            replace(
                weights,
                lead=weights.lead * kept,
                tail=np.where(inside, weights.tail * edit.factor, weights.tail),
                work=np.where(mine, weights.work * edit.factor, weights.work),
            )
            for weights in several
        ]

    def _fuse(self, several: Sequence[Weights], edit: Edit) -> Sequence[Weights]:
        host = self._spans_by_thread([edit])
        kept, inside = 1 - self._share(host) * (1 - edit.factor), self._inside(host)
        launched = self._launched_by
        merged = (launched >= 0) & inside[np.maximum(launched, 0)]
        return [
            replace(weights, lead=weights.lead * kept, gap=np.where(merged, weights.gap * edit.factor, weights.gap))
            for weights in several
        ]

    def _unsync(self, several: Sequence[Weights], edit: Edit) -> Sequence[Weights]:
        inside = self._inside(self._spans_by_thread([edit]))
        cut = self._edges_into(inside) & np.isin(self.graph.edges.why, (Why.SYNC, Why.COPY))
        no_longer = np.zeros(len(inside), bool)
        works = len(self.graph.work.row)
        no_longer[self.graph.edges.target[cut] - works] = True
        # What such a call took after the device was done was its way out of waiting, unless its thread did not run.
        return [
            replace(weights, tail=np.where(no_longer, self._late_ns, weights.tail), alive=weights.alive & ~cut)
            for weights in several
        ]

    def _moved_ns(self, edit: Edit) -> float:
        """Work per step that leaves the critical path."""
        graph = self.graph
        host = self._spans_by_thread([edit])
        mine = self._among(edit.rows) & ~graph.work.early
        device = float(graph.work.dur[mine].sum())
        return (float((graph.points.lead * self._share(host)).sum()) + device) / graph.steps

    def _among(self, rows: Ints) -> Mask:
        """Which work of the graph is one of these rows."""
        return among(self.graph.work.row, rows, len(self.events))

    def _spans_by_thread(self, edits: Sequence[Edit]) -> dict[int, Intervals]:
        """Host stretches that the edits name, per thread, ns from the start of the window."""
        events, found = self.events, {}
        rows = np.concatenate([edit.rows for edit in edits]) if edits else np.empty(0, np.int64)
        rows = rows[np.isin(events.category[rows], _HOST)]
        for thread in distinct(events.thread[rows], len(events.threads)).tolist():
            mine = rows[events.thread[rows] == thread]
            spans = union(events.start_ns[mine] - self.opens, events.end_ns[mine] - self.opens)
            found[thread] = _joined(spans, max(edit.pause_ns for edit in edits))
        loop = [edit.spans - self.opens for edit in edits if len(edit.spans)]
        if loop:
            main = self.graph.threads[0]
            both = np.concatenate([*loop, found.get(main, EMPTY)])
            found[main] = union(both[:, 0], both[:, 1])
        return found

    def _share(self, host: dict[int, Intervals]) -> Floats:
        """Share of each point's lead that lies in these stretches."""
        points = self.graph.points
        share = np.zeros(len(points))
        for thread, spans in host.items():
            mine = np.flatnonzero((self._thread_of_point == thread) & (points.lead > 0))
            covered = overlap_of_each(points.lead_start[mine], points.lead_end[mine], spans)
            share[mine] = covered / points.lead[mine]
        return share

    def _inside(self, host: dict[int, Intervals]) -> Mask:
        """Which points are calls that begin inside these stretches."""
        inside = np.zeros(len(self.graph.points), bool)
        for thread, spans in host.items():
            mine = np.flatnonzero((self._thread_of_point == thread) & (self._call_start >= 0))
            inside[mine] = starts_in(self._call_start[mine], spans)
        return inside

    def _edges_into(self, points: Mask) -> Mask:
        """Which edges hold one of these points back."""
        target = self.graph.edges.target - len(self.graph.work.row)
        return (target >= 0) & points[np.maximum(target, 0)]


def _joined(spans: Intervals, pause_ns: int) -> Intervals:
    """The spans with the pauses between them that are no longer than that."""
    short = spans[1:, 0] - spans[:-1, 1] <= pause_ns
    return np.column_stack((spans[np.r_[True, ~short], 0], spans[np.r_[~short, True], 1])) if len(spans) else spans


def _late_ns(graph: Graph, late: Intervals) -> Ints:
    """How much of each point's tail its thread did not run for."""
    points = graph.points
    return overlap_of_each(points.time - points.tail, points.time, late)


def _launching_points(graph: Graph) -> Ints:
    """For each work the point of the call that launched it, -1 where none."""
    works = len(graph.work.row)
    launched = np.full(works, -1, np.int64)
    edges = np.flatnonzero(graph.edges.why == Why.LAUNCH)
    launched[graph.edges.target[edges]] = graph.edges.source[edges] - works
    return launched
