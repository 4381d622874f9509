"""What goes where a result that is there already is used: ops, what is between them, their backward pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import (
    Intervals,
    Lines,
    Nesting,
    Price,
    Reused,
    Saving,
    Source,
    StepOps,
    Steps,
    Trace,
    UnfollowedForwards,
    backward_passes,
    dataclass,
    edits,
    overlap_of_each,
    subtract,
    total,
    union,
)

from ..shared._side_effect_factors import BESIDES
from ._repeated_passes import passes_again

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
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


@dataclass(frozen=True, slots=True, eq=False)
class Reuse:
    """Ops that need not run, on the loop's thread.

    rows      the ops;  nodes: of the backward pass what they recorded, on whichever thread
    us        time per step of the ops and what lies between them; backward_us: of the nodes
    where     the user's lines that ran them, by time
    """

    rows: Ints
    nodes: Ints
    us: float
    backward_us: float
    where: tuple[Source, ...]
    spans: Intervals  # of ops and nodes alone
    wide: Intervals  # with what lies between them
    casts: Ints  # of the rows those that autocast made inside another op
    passes: float  # backward passes per step that need not run at all
    typical: float  # share of the median step that this takes, by that of all steps; at most 1


def owned(trace: Trace, reused: Reused, nesting: Nesting, forwards: UnfollowedForwards | None) -> tuple[Ints, Ints]:
    """Rows that compute something again, and rows that are constant: no row is both, and none is another rule's.

    Forward passes that no backward pass follows have rules of their own; where one of two equal ops is recorded for a
    backward pass and the other is not, that is an evaluation beside the training. What the step before had computed
    counts where a whole pass runs twice, forward and backward: a graph does not outlive its backward pass. Constants
    that are made several times are constants where they are most of what is made again, else a part of that.
    """
    passes = np.array([row for run in forwards.runs for row in run.rows] if forwards else [], np.int64)
    recorded, took = trace.events.sequence >= 0, trace.events.dur_ns
    # A cast of autocast's belongs to the call that it was made for.
    theirs = np.isin(nesting.outer_op[reused.again], passes) | np.isin(nesting.outer_op[reused.first], passes)
    theirs |= recorded[reused.again] != recorded[reused.first]
    if reused.over.any() and not len(passes_again(trace, reused, pairs(reused)[reused.over]).fills):
        theirs |= reused.over
    again, constant = np.unique(reused.again[~theirs]), np.unique(reused.constant)
    both = np.intersect1d(again, constant)
    if 2 * took[both].sum() > took[again].sum():
        return np.setdiff1d(again, both), constant
    return again, np.setdiff1d(constant, np.union1d(both, reused.first[np.isin(reused.again, both)]))


def pairs(reused: Reused) -> Ints:
    """(n, 2) each op that computes something again, and the one that had."""
    return np.stack((reused.again, reused.first), axis=1)


def reuse(recorded: StepOps, reused: Reused, lines: Lines | None, rows: Ints, firsts: Ints) -> Reuse:
    """These ops (some of `reused.ops`) with all that goes with them. firsts: the ops whose results are used instead."""
    trace, steps, nesting = recorded.trace, recorded.steps, recorded.nesting
    events = trace.events
    alike = events.rows_with(events.names_where(_VIEWS.__contains__))
    views = alike[reused.ops] & ~np.isin(reused.ops, rows)
    # A row that is itself a look at a tensor has no others of its own: those beside it are of other tensors.
    solid, alone = rows[~alike[rows]], rows[alike[rows]]
    seen = np.union1d(_with_views(reused.ops, views, solid), alone)
    own, firsts_nodes = _nodes(trace, reused, seen), _nodes(trace, reused, firsts)
    both = pairs(reused)[np.isin(reused.again, rows) & np.isin(reused.first, firsts)]
    whole = passes_again(trace, reused, both)
    sums = _sums(trace, nesting, _in_passes_of(trace, firsts_nodes, own))
    # What is kept from before the loop has no backward pass; what an earlier op made without one has it here.
    behind_own = _in_passes_of(trace, own, firsts_nodes) if len(firsts) else own
    nodes = np.union1d(np.union1d(behind_own, whole.nodes), sums)
    spans = union(events.start_ns[rows], events.end_ns[rows])
    casts = rows[nesting.outer_op[rows] != rows]
    # Gradients of what is cast once are added up all the same, before the cast's own node instead of behind it.
    kept = _sums(trace, nesting, np.intersect1d(nodes, _nodes(trace, reused, casts)))
    # The call that casts are in is made all the same, and so is what lies around it.
    solid, alone = np.setdiff1d(solid, casts), np.setdiff1d(alone, casts)
    wide = _both(_joined(trace, steps, reused.ops[~views], solid), _joined(trace, steps, reused.ops, alone))
    wide = _both(wide, union(events.start_ns[casts], events.end_ns[casts]))
    every = np.flatnonzero(events.named(backward_passes.NODE) & (events.thread == steps.main_thread))
    behind = _joined(trace, steps, every, np.intersect1d(nodes, every))
    of_nodes = union(events.start_ns[nodes], events.end_ns[nodes])
    goes = _both(wide, behind)
    return Reuse(
        rows=rows,
        nodes=nodes,
        us=steps.per_step_us(total(wide)),
        backward_us=steps.per_step_us(total(of_nodes)),
        where=_where(trace, lines, rows if not len(whole.fills) else whole.fills),
        spans=subtract(_both(spans, of_nodes), union(events.start_ns[kept], events.end_ns[kept])),
        wide=goes,
        casts=casts,
        passes=len(whole.fills) / steps.count,
        typical=_typical(steps, goes),
    )


def _typical(steps: Steps, spans: Intervals) -> float:
    """The share of the median step that is in these spans, by that of all steps; of those that have any, at most 1.

    Ops of a few µs are most of a step in which another process had the core meanwhile, and next to nothing of others.
    """
    took = overlap_of_each(steps.spans[:, 0], steps.spans[:, 1], spans)
    long = (steps.spans[:, 1] - steps.spans[:, 0])[took > 0]
    took = took[took > 0]
    return min(float(np.median(took / long) * long.sum() / took.sum()), 1.0) if len(took) else 1.0


def _both(one: Intervals, other: Intervals) -> Intervals:
    both = np.concatenate((one, other))
    return union(both[:, 0], both[:, 1])


def _with_views(ops: Ints, views: Mask, rows: Ints) -> Ints:
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


def _nodes(trace: Trace, reused: Reused, rows: Ints) -> Ints:
    """The nodes of the backward pass that were recorded during these ops.

    Each op carries the count of recorded nodes at its start: those up to the count of the next op are its own.
    """
    events = trace.events
    mine = reused.ops[(events.sequence[reused.ops] >= 0) & (events.forward_thread[reused.ops] <= 0)]
    if not len(mine):
        return np.empty(0, np.int64)
    at = np.searchsorted(mine, rows)
    known = (at < len(mine) - 1) & (mine[np.minimum(at, len(mine) - 1)] == rows)
    first = events.sequence[rows[known]]
    stop = events.sequence[mine[at[known] + 1]]
    nodes = np.flatnonzero(events.named(backward_passes.NODE) & (events.sequence >= 0))
    order = np.argsort(events.sequence[nodes], kind="stable")
    ordered = events.sequence[nodes][order]
    low, high = np.searchsorted(ordered, first), np.searchsorted(ordered, stop)
    chosen = [order[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True) if b > a]
    return np.unique(nodes[np.concatenate(chosen)]) if chosen else np.empty(0, np.int64)


def _in_passes_of(trace: Trace, nodes: Ints, firsts: Ints) -> Ints:
    """Those nodes that run in a backward pass which goes through the first ops, too: in others the first would run.

    None without any node of first ops.
    """
    events = trace.events
    every = np.flatnonzero(events.named(backward_passes.NODE) & (events.sequence >= 0))
    if not len(firsts) or not len(nodes):
        return nodes[:0]
    number = np.cumsum(backward_passes.begins(events, every))
    both = np.intersect1d(number[np.isin(every, nodes)], number[np.isin(every, firsts)])
    return nodes[np.isin(nodes, every[np.isin(number, both)])]


def _sums(trace: Trace, nesting: Nesting, nodes: Ints) -> Ints:
    """Where the engine adds up the gradients of two uses: additions directly in these nodes, in no derivative."""
    events = trace.events
    sums = np.flatnonzero(events.exactly("aten::add", "aten::add_"))
    return sums[np.isin(nesting.parent[sums], nodes)]


def _where(trace: Trace, lines: Lines | None, rows: Ints) -> tuple[Source, ...]:
    """The lines that ran most of the rows' time."""
    took: dict[Source, int] = {}
    for row in rows.tolist() if lines is not None else ():
        found = lines.where_op(row) if lines is not None else None
        if found is not None:
            took[found] = took.get(found, 0) + int(trace.events.dur_ns[row])
    order = sorted(took, key=lambda one: -took[one])
    whole = sum(took.values())
    return tuple(one for one in order[:_MOST_NAMED] if took[one] >= _NAMED * whole)


def worth(work: Reuse, saving: Saving, price: Price, min_share: float, sure: float = 0.0) -> bool:
    """Whether that is material; on a CPU in the median step, too. sure: the part of `min_share` that is certain."""
    least_us = min_share * price.scale.step_us
    typical = 1.0 if price.on_device else work.typical
    return typical * saving.high_us >= least_us and typical * saving.low_us >= sure * least_us


def saving_of(work: Reuse, price: Price) -> tuple[Saving, tuple[str, ...]]:
    """What the step saves without that work, and the parts of the step that it is claimed from."""
    claims = price.claims("forward", "backward", "other_ops", "host")
    if price.on_device:
        how = "the step without these ops and their part of the backward pass"
        gone = [edits.remove(np.union1d(work.rows, work.nodes))]
        return price.saving(gone, gone, claims, how), claims
    how = "low: the time of these ops and of their part of the backward pass; high: plus the time between them, and "
    how += "what they evict from the caches"
    # Where the profiler slowed ops more than what lies between them, the wider spans may come out as the shorter ones.
    sure, wide = [edits.remove_time(work.spans)], [edits.remove_time(work.wide)]
    return price.divided(sure, wide, claims, how, times=BESIDES), claims
