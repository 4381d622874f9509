"""The same result again: ops that need not run because what they compute is there, all that goes with them, its price.

Five rules stand on it, by where the result is there from: an earlier op of the step (repeated-work), the trained
forward pass (second-forward), all steps before (rebuilt-constants), the epoch before (recomputed-features). Of
repeated-backward nothing but the backward pass runs again, which is told by its nodes (_repeated_nodes).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.api import (
    AUTOGRAD_NODE,
    CallSites,
    Category,
    Intervals,
    Ints,
    Lines,
    Price,
    Reused,
    RowMask,
    Saving,
    Source,
    StepOps,
    Steps,
    Trace,
    UnfollowedForwards,
    edits,
    subtract,
    total,
    union,
)

from ..shared._side_effect_factors import SIDE_EFFECTS
from ._recorded_by import RecordedBy

Range = tuple[float, float]
# Ops that only look at a tensor anew: of no use without the ones around them.
_VIEWS = frozenset(
    "aten::" + name
    for names in (
        ("view", "view_as", "reshape", "flatten", "unflatten", "transpose", "t", "permute", "movedim", "numpy_T", "mT"),
        ("adjoint", "expand", "expand_as", "unsqueeze", "squeeze", "select", "slice", "narrow", "diagonal", "unfold"),
        ("chunk", "split", "unbind", "detach", "alias", "as_strided", "to", "contiguous"),
    )
    for name in names
)
# Python between two calls of ops takes less; longer stretches of it do something else.
_LONGEST_GAP_NS = 200_000
# Lines with less of the time than this are not named beside the first.
_NAMED, _MOST_NAMED = 0.15, 3


class Reuse(Struct, frozen=True, eq=False):
    """What goes where a result that is there already is used: ops, what lies between them, their backward pass.

    rows      the ops, on the loop's thread;  casts: those of them that autocast made inside another op
    nodes     of the backward pass what they recorded, on whichever thread
    us        time per step of the ops and what lies between them; backward_us: of the nodes
    passes    backward passes per step that need not run at all
    where     the user's lines that ran them, by time
    saving    what the step saves without all that, from the parts of the step in `claims`
    undisturbed   (low, high) share of the ops' time that it takes in a step that nothing interrupts
    """

    rows: Ints
    casts: Ints
    nodes: Ints
    us: float
    backward_us: float
    passes: float
    where: tuple[Source, ...]
    saving: Saving
    claims: tuple[str, ...]
    undisturbed: Range

    def is_material(self, price: Price, min_share: float, sure: float = 0.0) -> bool:
        """Whether it is worth a change, on a CPU in an undisturbed step, too. sure: what of `min_share` is certain."""
        step_us, saving = price.scale.step_us, self.saving
        ends = [(saving.low_us / step_us, saving.high_us / step_us)]
        ends += [] if price.on_device else [self.undisturbed]
        return all(high >= min_share and low >= sure * min_share for low, high in ends)


def reuse(price: Price, reused: Reused, lines: Lines | None, rows: Ints, firsts: Ints) -> Reuse:
    """These ops (some of `reused.ops`) with all that goes with them. firsts: the ops whose results are used instead."""
    recorded = price.ops
    trace, steps, nesting = recorded.trace, recorded.steps, recorded.nesting
    casts = rows[nesting.outer_op[rows] != rows]
    seen, called = _called(recorded, reused, rows, casts)
    graph = RecordedBy.find(recorded, reused)
    fills, whole = graph.passes_again(_pairs(reused, np.isin(reused.again, rows) & np.isin(reused.first, firsts)))
    nodes = np.union1d(graph.gone(seen, firsts), whole)
    # Gradients of what is cast once are added up all the same, before the cast's own node instead of behind it.
    kept = graph.sums(np.intersect1d(nodes, graph.by(casts)))
    of_nodes = _spans(trace, nodes)
    every = np.flatnonzero(trace.events.named(AUTOGRAD_NODE) & (trace.events.thread == steps.main_thread))
    wide = _both(called, _joined(trace, steps, every, np.intersect1d(nodes, every)))
    sure = subtract(_both(_spans(trace, rows), of_nodes), _spans(trace, kept))
    claims = price.claims("forward", "backward", "other_ops", "host")
    return Reuse(
        rows=rows,
        casts=casts,
        nodes=nodes,
        us=steps.per_step_us(total(called)),
        backward_us=steps.per_step_us(total(of_nodes)),
        passes=len(fills) / steps.count,
        where=_where(trace, lines, fills if len(fills) else rows),
        saving=_saving(price, np.union1d(rows, nodes), sure, wide, claims),
        claims=claims,
        undisturbed=_undisturbed(price, reused.ops, np.union1d(rows, nodes)),
    )


def owned(recorded: StepOps, reused: Reused, forwards: UnfollowedForwards | None) -> tuple[Ints, Ints]:
    """Rows that compute something again, and rows that are constant: no row is both, and none is another rule's.

    Forward passes that no backward pass follows have rules of their own; where one of two equal ops is recorded for a
    backward pass and the other is not, that is an evaluation beside the training. What the step before had computed
    counts where a whole pass runs twice, forward and backward: a graph does not outlive its backward pass. Constants
    that are made several times are constants where they are most of what is made again, else a part of that.
    """
    events, outer = recorded.trace.events, recorded.nesting.outer_op
    passes = np.array([row for run in forwards.runs for row in run.rows] if forwards else [], np.int64)
    tracked = events.sequence >= 0
    # A cast of autocast's belongs to the call that it was made for.
    theirs = np.isin(outer[reused.again], passes) | np.isin(outer[reused.first], passes)
    theirs |= tracked[reused.again] != tracked[reused.first]
    if reused.over.any() and not len(RecordedBy.find(recorded, reused).passes_again(_pairs(reused, reused.over))[0]):
        theirs |= reused.over
    again, constant = np.unique(reused.again[~theirs]), np.unique(reused.constant)
    both = np.intersect1d(again, constant)
    if 2 * events.dur_ns[both].sum() > events.dur_ns[again].sum():
        return np.setdiff1d(again, both), constant
    return again, np.setdiff1d(constant, np.union1d(both, reused.first[np.isin(reused.again, both)]))


def _pairs(reused: Reused, chosen: RowMask) -> Ints:
    """(n, 2) each of these ops that computes something again, and the one that had."""
    return np.stack((reused.again[chosen], reused.first[chosen]), axis=1)


def _saving(price: Price, rows: Ints, sure: Intervals, wide: Intervals, claims: tuple[str, ...]) -> Saving:
    if price.on_device:
        gone = [edits.remove(rows)]
        return price.saving(gone, gone, claims, "the step without these ops and their part of the backward pass")
    how = "low: the time of these ops and of their part of the backward pass; high: plus the time between them, and "
    how += "what they evict from the caches"
    # Where the profiler slowed ops more than what lies between them, the wider spans may come out as the shorter ones.
    return price.divided([edits.remove_time(sure)], [edits.remove_time(wide)], claims, how, times=SIDE_EFFECTS)


def _called(recorded: StepOps, reused: Reused, rows: Ints, casts: Ints) -> tuple[Ints, Intervals]:
    """(the rows with the views around them, their time with what lies between them)."""
    trace, steps, ops = recorded.trace, recorded.steps, reused.ops
    alike = trace.events.rows_with(trace.events.names_where(_VIEWS.__contains__))
    views = alike[ops] & ~np.isin(ops, rows)
    # A row that is itself a look at a tensor has no others of its own: those beside it are of other tensors.
    solid, alone = rows[~alike[rows]], rows[alike[rows]]
    seen = np.union1d(_with_views(ops, views, solid), alone)
    # The call that casts are in is made all the same, and so is what lies around it.
    around = _joined(trace, steps, ops[~views], np.setdiff1d(solid, casts))
    around = _both(around, _joined(trace, steps, ops, np.setdiff1d(alone, casts)))
    return seen, _both(around, _spans(trace, casts))


def _with_views(ops: Ints, views: RowMask, rows: Ints) -> Ints:
    """The rows with the views of what they read or made: those next to one of them, with no other op between."""
    chosen = np.isin(ops, rows)
    others = np.flatnonzero(~views)
    if not len(others):
        return rows
    after = np.searchsorted(others, np.arange(len(ops)))
    last, following = others[np.maximum(after - 1, 0)], others[np.minimum(after, len(others) - 1)]
    return ops[chosen | (views & (chosen[last] | chosen[following]))]


def _joined(trace: Trace, steps: Steps, among: Ints, rows: Ints) -> Intervals:
    """The time of rows with what lies around them up to others of `among`, as far as that is short, in one step."""
    if not len(rows):
        return np.empty((0, 2), np.int64)
    events = trace.events
    others = np.setdiff1d(among, rows)
    ends, starts = np.sort(events.end_ns[others]), events.start_ns[others]
    mine, stops = events.start_ns[rows], events.end_ns[rows]
    bounds = np.concatenate(([np.iinfo(np.int64).min], ends)), np.concatenate((starts, [np.iinfo(np.int64).max]))
    before = bounds[0][np.searchsorted(ends, mine, side="right")]
    after = bounds[1][np.searchsorted(starts, stops, side="left")]
    step = steps.spans[np.maximum(steps.step_of(mine), 0)]
    began = np.maximum(np.maximum(before, step[:, 0]), mine - _LONGEST_GAP_NS)
    ended = np.minimum(np.minimum(after, step[:, 1]), stops + _LONGEST_GAP_NS)
    return union(np.minimum(began, mine), np.maximum(ended, stops))


def _spans(trace: Trace, rows: Ints) -> Intervals:
    return trace.events.covered(rows)


def _both(one: Intervals, other: Intervals) -> Intervals:
    both = np.concatenate((one, other))
    return union(both[:, 0], both[:, 1])


def _undisturbed(price: Price, ops: Ints, rows: Ints) -> Range:
    """(low, high) share of the ops' time that these rows take where nothing interrupts them.

    Where another process takes the core, an op of a few µs lasts as long as a hundred others: each place of the step
    counts as where it was shortest, in the steps whose numbers of ops and rows are the most frequent ones, of those
    that have any. low: what is recorded in the rows took as long to record as it takes at most; high: nothing.
    """
    recorded, numbers = price.ops, _numbers(price.ops, rows)
    kind = np.unique([_numbers(recorded, ops), numbers], axis=1, return_inverse=True)[1].reshape(-1)
    if not numbers.any():
        return 0.0, 0.0
    alike = np.flatnonzero(kind == np.bincount(kind[numbers > 0]).argmax())
    ends = []
    for row_us in (price.deprofiled.most_row_us, 0.0):
        every_us, mine_us = (_shortest_us(recorded, one, alike, row_us) for one in (ops, rows))
        ends.append(float((numbers > 0).mean()) * min(mine_us / every_us, 1.0) if every_us else 0.0)
    return ends[0], ends[1]


def _numbers(recorded: StepOps, rows: Ints) -> Ints:
    """How many of the rows each step has."""
    step = recorded.steps.step_of(recorded.events.start_ns[rows])
    found: Ints = np.bincount(step[step >= 0], minlength=recorded.steps.count)
    return found


def _shortest_us(recorded: StepOps, rows: Ints, steps: Ints, row_us: float) -> float:
    """The sum of what the rows take where they are shortest. steps: those that count, of which all have as many rows.

    row_us: what it took to record each op in them, which is left out.
    """
    events = recorded.events
    starts = np.sort(events.start_ns[events.of(Category.CPU_OP) & (events.thread == recorded.steps.main_thread)])
    chosen = np.sort(rows[np.isin(recorded.steps.step_of(events.start_ns[rows]), steps)]).reshape(len(steps), -1)
    inside = np.searchsorted(starts, events.end_ns[chosen]) - np.searchsorted(starts, events.start_ns[chosen])
    return float(np.maximum(events.dur_ns[chosen] / 1e3 - inside * row_us, 0.0).min(axis=0, initial=np.inf).sum())


def _where(trace: Trace, lines: Lines | None, rows: Ints) -> tuple[Source, ...]:
    """The lines that ran most of the rows' time, and the line that calls them and does little else.

    Where other lines call the same code, the one that led to these rows comes first: there the result is passed on.
    """
    took: dict[Source, int] = {}
    for row in rows.tolist() if lines is not None else ():
        found = lines.where_op(row) if lines is not None else None
        if found is not None:
            took[found] = took.get(found, 0) + int(trace.events.dur_ns[row])
    order = sorted(took, key=lambda one: -took[one])
    whole = sum(took.values())
    named = tuple(one for one in order[:_MOST_NAMED] if took[one] >= _NAMED * whole)
    if lines is None:
        return ()
    sites = CallSites.compute(trace, lines)
    apart = sites.where_apart(rows)
    return tuple(dict.fromkeys((*((apart,) if apart else ()), *named, *sites.of_rows(rows, named))))
