"""Forward passes that autograd recorded and no backward pass followed."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import Lines
from advisor.computed import Missing
from advisor.constants import constant
from advisor.model import Source
from advisor.trace.events import Category, Events, Ints, Mask, Numbers, Trace
from advisor.trace.intervals import Intervals
from advisor.trace.numbers import narrowed
from advisor.trace.op_names import AUTOGRAD_NODE

# no_grad gave back nothing to 43 % of the forward pass of eleven models on a CPU, in the median 12 %: most of a small
# convolutional network and of an LSTM, nothing of wide linear layers.
NO_GRAD_SAVES = constant("share.no_grad").value

_OPTIMIZER = ("Optimizer.step#", "Optimizer.zero_grad#")
_FETCH = "enumerate(DataLoader)#"
_RANDOM = ("aten::native_dropout", "aten::bernoulli", "aten::_fused_dropout")
# Checkpointing kept its inputs in a node that no pass ever goes through (seen in torch 2.1 and 2.6, gone in 2.15).
_BY_DESIGN = "_NoopSaveInputs"
# A run is a forward pass where its recorded ops take most of its time in ops. Else ops that autograd never records lie
# between a few that it does: sampling from what a policy says, the checks of a distribution's arguments.
_MOST = 0.5
# A second pass runs its ops as often as the pass that it repeats; half as often where that trains two batches.
_AS_OFTEN = 0.5
# What only a network computes. Without any of these a run is a term of a loss, or a check of what a policy says.
_LAYERS = (
    "aten::linear",
    "aten::conv",
    "aten::matmul",
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::einsum",
    "aten::embedding",
    "aten::lstm",
    "aten::gru",
    "aten::rnn",
    "aten::_convolution",
    "aten::scaled_dot_product",
)


class Unfollowed(Struct, frozen=True, eq=False):
    """A sequence of ops on the loop's thread whose graph no backward pass used.

    rows        the outermost ops of the sequence
    start_ns, end_ns   of the sequence, with the Python before, between and after its ops
    repeated    share of its time in ops that a trained forward pass of this step also runs, with the same shapes, with
                the same weights and in the same mode: no optimizer step between them, dropout in both or neither; ops
                that are trained far more often than not (a solver's stages) are not repetitions
    where       the user's line, if known
    """

    rows: tuple[int, ...]
    start_ns: int
    end_ns: int
    repeated: float
    where: Source | None


def is_network(events: Events, run: Unfollowed) -> bool:
    """Whether a sequence has an op that occurs only in networks, or one that is not torch's own."""
    return any(is_layer(events, row) for row in run.rows if events.sequence[row] >= 0)


def is_layer(events: Events, row: int) -> bool:
    """Whether this op occurs only in networks; an op that is not torch's own may be one of those."""
    return events.text(row).startswith(_LAYERS) or not events.text(row).startswith("aten::")


class UnfollowedForwards(Struct, frozen=True, eq=False):
    """All such sequences within the window, in order; trained: the outermost ops that a backward pass goes through."""

    runs: tuple[Unfollowed, ...]
    trained: Ints

    @property
    def spans(self) -> Intervals:
        """(n, 2) their spans, ns."""
        return np.array([(run.start_ns, run.end_ns) for run in self.runs], np.int64).reshape(-1, 2)

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting, lines: Lines) -> UnfollowedForwards:
        """The sequences. Raises Missing if the trace does not link forward ops with their backward nodes.

        Autograd counts the nodes that it records on a thread; each op carries the count at its start (under no_grad it
        carries none), and each node of the backward pass the number that it was recorded under.
        """
        events = trace.events
        nodes = events.named(AUTOGRAD_NODE) & (events.sequence >= 0)
        if not nodes.any():
            raise Missing("the trace contains no backward pass that is linked to its forward ops")
        edges, kind, recorded, live = _edges(events, nesting, steps, nodes)
        # What comes after the last backward pass of the trace may have its own after the trace.
        last = _last_whole_pass(events, steps, nesting, events.start_ns[nodes])
        found = _runs(kind, live, recorded)
        ended = [events.end_ns[edges[stop - 1]] <= last for _, stop in found]
        # The last step's run may have no backward pass after it; it is one of those that had none in earlier steps.
        seen = {tuple(events.name[edges[a:b]].tolist()) for (a, b), done in zip(found, ended, strict=True) if done}
        when, random = _weights(events, steps), _random(events, nesting)
        vain = _Counts.of(events, edges[recorded & ~live], when)
        trained = _Counts.of(events, edges[live], when)
        runs = []
        for (first, stop), done in zip(found, ended, strict=True):
            rows = edges[first:stop]
            if not done and tuple(events.name[rows].tolist()) not in seen:
                continue
            if steps.step_of(events.start_ns[rows[:1]])[0] < 0:
                continue
            of_graph = rows[recorded[first:stop]]
            if events.dur_ns[of_graph].sum() < _MOST * events.dur_ns[rows].sum():
                continue
            begin, end = _reach(events, edges, first, stop)
            share = _repeated(events, of_graph, edges[live], when, random, (vain, trained))
            runs.append(Unfollowed(tuple(rows.tolist()), begin, end, share, _where(events, lines, rows)))
        return cls(tuple(runs), edges[live])


def _last_whole_pass(events: Events, steps: Steps, nesting: Nesting, nodes_ns: Ints) -> int:
    """When the last node of the last backward pass begins that the trace does not end in, -1 where there is none.

    A recording that ends in a backward pass holds no later op of the loop: what the rest of the pass would have gone
    through is not known.
    """
    loop = events.of(Category.CPU_OP) & nesting.outermost & (events.thread == steps.main_thread)
    others_ns = events.start_ns[loop & ~events.named(AUTOGRAD_NODE)]
    last = int(nodes_ns.max())
    if not len(others_ns) or int(others_ns.max()) > last:
        return last
    return int(nodes_ns[nodes_ns < others_ns.max()].max(initial=-1))


def live_ops(trace: Trace, steps: Steps, nesting: Nesting) -> Ints:
    """The outermost ops of the loop's thread whose autograd nodes some backward pass evaluates, by start."""
    events = trace.events
    edges, _, _, live = _edges(events, nesting, steps, events.named(AUTOGRAD_NODE) & (events.sequence >= 0))
    return edges[live]


def _edges(events: Events, nesting: Nesting, steps: Steps, nodes: Mask) -> tuple[Ints, Ints, Mask, Mask]:
    """The outermost rows and what they are, as `_rows` tells them; which are recorded, and which of these are used."""
    edges, kind = _rows(events, nesting, steps)
    recorded = _recorded(events, edges, kind)
    used = np.unique(events.sequence[nodes])
    return (
        edges,
        kind,
        recorded,
        recorded & _any_between(used, events.sequence[edges], _next_number(events, edges, kind)),
    )


def _rows(events: Events, nesting: Nesting, steps: Steps) -> tuple[Ints, Numbers]:
    """The outermost rows of the loop's thread by start, and what each is: 1 an op, 2 something that ends a run."""
    kind = np.zeros(len(events), np.int8)
    outermost = nesting.outermost
    kind[events.of(Category.CPU_OP) & outermost] = 1
    ends = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named(
        AUTOGRAD_NODE, *_OPTIMIZER, _FETCH, "ProfilerStep#"
    )
    kind[nesting.within(ends & ~events.named("ProfilerStep#"))] = 0
    kind[ends] = 2
    kind[events.thread != steps.main_thread] = 0
    rows = np.flatnonzero(kind)
    return rows, kind[rows]


def _next_number(events: Events, rows: Ints, kind: Ints) -> Ints:
    """For each row the count of recorded nodes at the next op that carries one; its own where none follows."""
    numbers = np.where((kind == 1) & (events.forward_thread[rows] <= 0), events.sequence[rows], -1)
    later = np.concatenate((numbers[1:], [-1])) if len(rows) else numbers
    # The first op after this one that carries a number.
    at = np.where(later >= 0, np.arange(len(rows)), len(rows))
    at = np.minimum.accumulate(at[::-1])[::-1]
    found = np.where(at < len(rows), later[np.minimum(at, len(rows) - 1)], -1) if len(rows) else later
    result: Ints = np.where(found >= 0, found, numbers)
    return result


def _recorded(events: Events, rows: Ints, kind: Ints) -> Mask:
    """Which rows are ops during which the count grew, and whose node is there for a backward pass."""
    own = events.sequence[rows]
    grew: Mask = (kind == 1) & (own >= 0) & (_next_number(events, rows, kind) > own)
    grew &= ~events.exactly(_BY_DESIGN)[rows]
    return grew


def _any_between(numbers: Ints, low: Ints, high: Ints) -> Mask:
    """Whether one of the sorted numbers lies in [low, high), for each pair."""
    found: Mask = np.searchsorted(numbers, high) > np.searchsorted(numbers, low)
    return found


def _runs(kind: Ints, live: Mask, recorded: Mask) -> list[tuple[int, int]]:
    """(first, stop) of the runs of ops between live ops and ends, from the first recorded op to the last op."""
    stops = np.append(np.flatnonzero((kind == 2) | live), len(kind))
    starts = np.concatenate(([0], stops[:-1] + 1))
    dead = np.append(np.flatnonzero(recorded), len(kind))
    first = dead[np.searchsorted(dead, starts)]
    some = first < stops
    return list(zip(first[some].tolist(), stops[some].tolist(), strict=True))


def _reach(events: Events, edges: Ints, first: int, stop: int) -> tuple[int, int]:
    """From when to when a run lasts, with the Python before and after it as far as that is like the Python within."""
    rows = edges[first:stop]
    gaps = events.start_ns[rows[1:]] - events.end_ns[rows[:-1]]
    longest = int(gaps.max()) if len(gaps) else 0
    begin, end = int(events.start_ns[rows[0]]), int(events.end_ns[rows[-1]])
    before = int(events.end_ns[edges[first - 1]]) if first else begin
    after = int(events.start_ns[edges[stop]]) if stop < len(edges) else end
    return min(begin, max(before, begin - longest)), max(end, min(after, end + longest))


def _weights(events: Events, steps: Steps) -> Numbers:
    """(n,) for each row a number that two rows share where they lie in one step and see the same weights."""
    updates = np.sort(events.end_ns[events.of(Category.ANNOTATION) & events.named(_OPTIMIZER[0])])
    # Events are in order of time: it is enough to look up where each update lies among them.
    first = np.searchsorted(events.start_ns, updates, side="left")
    after = np.diff(first, prepend=0, append=len(events))
    return np.repeat(narrowed(np.arange(len(after)) * (steps.count + 1)), after) + steps.step_of(events.start_ns)


def _random(events: Events, nesting: Nesting) -> Mask:
    """(n,) the outermost ops that draw random numbers, as dropout does in training mode only."""
    inside = nesting.outer_op[events.of(Category.CPU_OP) & events.named(*_RANDOM)]
    outer = np.zeros(len(events), bool)
    outer[inside[inside >= 0]] = True
    return outer


class _Counts(Struct, frozen=True):
    """How often each op of known shapes runs with the same weights: (number in `when`, name, shapes) -> times."""

    times: dict[tuple[int, int, int], int]

    @classmethod
    def of(cls, events: Events, rows: Ints, when: Ints) -> _Counts:
        keys = zip(when[rows].tolist(), events.name[rows].tolist(), events.dims[rows].tolist(), strict=True)
        return cls(Counter(keys))


def _repeated(
    events: Events, rows: Ints, live: Ints, when: Ints, random: Mask, counts: tuple[_Counts, _Counts]
) -> float:
    """Share of the time of `rows` in ops that `live` ones of the same number in `when` have too, of equal shapes."""
    mine = live[np.isin(when[live], when[rows])]
    if random[mine].any() != random[rows].any():
        return 0.0
    vain, trained = (one.times for one in counts)
    spent = events.dur_ns[rows]
    same = []
    for key in zip(when[rows].tolist(), events.name[rows].tolist(), events.dims[rows].tolist(), strict=True):
        of_trained = trained.get(key, 0)
        same.append(key[2] >= 0 and 0 < of_trained * _AS_OFTEN <= vain.get(key, 0))
    return float(spent[np.array(same, bool)].sum() / max(spent.sum(), 1))


def _where(events: Events, lines: Lines, rows: Ints) -> Source | None:
    """The user's line that took most of the run."""
    took: dict[Source, int] = {}
    for row in rows.tolist():
        if (found := lines.where_op(row)) is not None:
            took[found] = took.get(found, 0) + int(events.dur_ns[row])
    return max(took, key=took.__getitem__, default=None)
