"""What each module of the model costs: time of its forward and its backward, device work, operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.scale import before_the_window
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.module_calls import ModuleCalls
from advisor.analyses.step.deprofiled import Deprofiled, Stretch
from advisor.analyses.step.phases import backward_rows
from advisor.analyses.step.step_parts import BACKWARD
from advisor.analyses.work.forward_flops import counted_rows, operations
from advisor.capture.record import RankRecord
from advisor.trace.events import Category, Events, Floats, Ints, Mask, Numbers, Trace
from advisor.trace.intervals import Intervals, intersect, overlap_of_each


class ModuleCosts(Struct, frozen=True, eq=False):
    """Figures by module that ran, per step: `whole` with the modules inside it, `own` without them.

    Each is an array by index into `calls.paths`; None where nothing tells it. Of steps that ran the same forward the
    median counts, for each way in which modules lie within each other: where a process lost its core is no module's
    doing. Else it is the mean.

    forward_us    the loop's thread within forwards. Python before a module's first op and after its last one is cut at
                  the place where the recorded step left the module
    backward_us   outermost autograd nodes, by the forward op that made them; what lies between nodes, and nodes that no
                  op made (they add up gradients), belong to no module. NaN where no node is of a module
    device_us     kernels, copies and fills that these started; they may overlap each other
    flops         of forward ops; NaN where a part of it is not known
    plain_us      (low, high) of forward and backward without the profiler, as far as capture timed the step
    step_us       the profiled step: what shares are of
    """

    calls: ModuleCalls
    whole: dict[str, Floats | None]
    own: dict[str, Floats | None]
    plain_us: tuple[Floats, Floats] | None
    step_us: float

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        calls: ModuleCalls,
        links: Links,
        nesting: Nesting,
        deprofiled: Deprofiled | None,
        record: RankRecord | None,
    ) -> ModuleCosts:
        """Costs of this rank. Missing where no module is known to have run."""
        work = _Work.of(trace, steps, calls, links, nesting)
        forward, backward = work.forward_us(), work.backward_us()
        linked = work.has_backward()
        timed = record is not None and bool(record.steps.unprofiled_us or record.steps.unprofiled_mean_us)
        chains = {"forward_us": forward, "backward_us": backward, "device_us": work.device_us(), "flops": work.flops()}
        whole = {name: _rolled_up(calls, of) for name, of in chains.items()}
        own = {name: _own(calls, of) for name, of in chains.items()}
        for table, known in ((whole, _rolled_up(calls, linked)), (own, _own(calls, linked))):
            column = table["backward_us"]
            table["backward_us"] = np.where(known, column, np.nan) if column is not None and known is not None else None
        return cls(
            calls,
            whole=whole,
            own=own,
            plain_us=_plain(work, _typical_parts(work, deprofiled, record), backward) if deprofiled and timed else None,
            step_us=float(work.typical_step(np.asarray(steps.profiled_us)[None, :])[0]),
        )


def nodes_of_chains(
    trace: Trace, steps: Steps, calls: ModuleCalls, links: Links, nesting: Nesting
) -> tuple[Intervals, Ints]:
    """The outermost autograd nodes that forward ops of modules made, in order of their start, and the chain of each."""
    work = _Work.of(trace, steps, calls, links, nesting)
    rows = np.flatnonzero(work.backward >= 0)
    rows = rows[np.argsort(trace.events.start_ns[rows], kind="stable")]
    return np.column_stack((trace.events.start_ns[rows], trace.events.end_ns[rows])), work.backward[rows]


def _rolled_up(calls: ModuleCalls, of_chains: Floats | None) -> Floats | None:
    """Of chains to modules, each with all that ran inside it; a module within itself counts once."""
    if of_chains is None:
        return None
    found = np.zeros(len(calls.paths))
    for chain, value in zip(calls.chains, of_chains.tolist(), strict=True):
        found[list(set(chain))] += value
    return found


def _own(calls: ModuleCalls, of_chains: Floats | None) -> Floats | None:
    """Of chains to the innermost module of each."""
    if of_chains is None:
        return None
    own: Floats = np.bincount([chain[-1] for chain in calls.chains], of_chains, len(calls.paths)).astype(float)
    return own


class _Work(Struct, frozen=True, eq=False):
    """Which chain each row of the trace works for.

    forward   for each event the chain whose forward it starts in on the loop's thread, -1 elsewhere
    node      for each event the outermost autograd node around it, -1 elsewhere
    backward  for each such node the chain of the op that made it, -1 where not known
    returned  steps whose backward is known
    """

    events: Events
    steps: Steps
    calls: ModuleCalls
    links: Links
    forward: Numbers
    node: Numbers
    backward: Numbers
    returned: Mask
    device_work: Mask

    @classmethod
    def of(cls, trace: Trace, steps: Steps, calls: ModuleCalls, links: Links, nesting: Nesting) -> _Work:
        """Looks every event up."""
        events = trace.events
        nodes = backward_rows(events)
        around = nesting.ancestor(nodes)
        outer = _outermost(around, nesting.parent)
        on_loop = (events.thread == steps.main_thread) & (around < 0) & events.of(Category.CPU_OP, Category.RUNTIME)
        forward = np.full(len(events), -1, np.int32)
        forward[on_loop] = calls.chain_at(events.start_ns[on_loop])
        backward = np.full(len(events), -1, np.int32)
        rows = np.flatnonzero(nodes & links.inside)
        rows = rows[outer[rows] == rows]
        backward[rows] = _made_by(events, on_loop & events.of(Category.CPU_OP), rows, forward)
        returned = np.zeros(steps.count, bool)
        returned[links.step[rows[backward[rows] >= 0]]] = True
        returned &= calls.kept
        return cls(events, steps, calls, links, forward, outer, backward, returned, trace.device_work)

    def _by_chain(self, chain: Numbers, step: Numbers, weights: Floats, of: Mask) -> Floats:
        """Sums of weights by chain in a typical one of the given steps."""
        chains, steps = len(self.calls.chains), self.steps.count
        known = (chain >= 0) & (step >= 0)
        flat = chain[known].astype(np.int64) * steps + step[known]
        table: Floats = np.bincount(flat, weights[known], chains * steps).astype(float).reshape(chains, steps)
        return self.typical_step(table, of)

    def typical_step(self, by_step: Floats, of: Mask | None = None) -> Floats:
        """One number for each row of a table by step: the median of the given steps, the mean where they differ."""
        chosen = by_step[:, self.calls.kept if of is None else of]
        if not chosen.shape[1]:
            return np.zeros(len(by_step))
        found: Floats = np.median(chosen, axis=1) if self.calls.alike else np.mean(chosen, axis=1)
        return found

    def in_spans(self, spans: Intervals) -> Floats:
        """µs of forwards within some spans, by chain."""
        pieces = intersect(self.calls.spans, spans)
        at = np.searchsorted(self.calls.spans[:, 0], pieces[:, 0], side="right") - 1
        us = (pieces[:, 1] - pieces[:, 0]) / 1e3
        return self._by_chain(self.calls.who[at], self.steps.step_of(pieces[:, 0]), us, self.calls.kept)

    def forward_us(self) -> Floats:
        """Time of the loop's thread by chain."""
        return self.in_spans(self.steps.window)

    def backward_us(self) -> Floats | None:
        """Time of outermost nodes by chain; None where none is linked."""
        if not self.returned.any():
            return None
        rows = np.flatnonzero(self.backward >= 0)
        us = self.events.dur_ns[rows] / 1e3
        return self._by_chain(self.backward[rows], self.links.step[rows], us, self.returned)

    def has_backward(self) -> Floats:
        """For each chain how many of its ops are known to have been gone back through."""
        return np.bincount(self.backward[self.backward >= 0], minlength=len(self.calls.chains)).astype(float)

    def device_us(self) -> Floats | None:
        """Device work by the chain of what launched it; None where no work is linked to a launch."""
        rows = np.flatnonzero(self.device_work & (self.links.launch >= 0))
        if not len(rows):
            return None
        launch, step, us = self.links.launch[rows], self.links.step[rows], self.events.dur_ns[rows] / 1e3
        node = self.node[launch]
        back = np.where(node >= 0, self.backward[np.maximum(node, 0)], -1)
        returned = self._by_chain(back, step, us, self.returned)
        return self._by_chain(self.forward[launch], step, us, self.calls.kept) + returned

    def flops(self) -> Floats | None:
        """Operations of forwards by chain, NaN where one of them is not known; None without any shape."""
        if not (self.events.dims[self.events.of(Category.CPU_OP)] >= 0).any():
            return None
        rows = counted_rows(self.events)
        rows = rows[self.forward[rows] >= 0]
        return self._by_chain(self.forward[rows], self.links.step[rows], operations(self.events, rows), self.calls.kept)

    def weights_by_part(self, deprofiled: Deprofiled, part: int) -> Floats:
        """Weight of the ops in forwards, of those that lie in one part of the step."""
        rows = np.flatnonzero((self.forward >= 0) & (deprofiled.part_of == part) & (deprofiled.weights > 0))
        return self._by_chain(self.forward[rows], self.links.step[rows], deprofiled.weights[rows], self.calls.kept)

    def weights_of_backward(self, weights: Floats) -> Floats:
        """Weight of the ops in nodes, by the chain that each node belongs to."""
        rows = np.flatnonzero((weights > 0) & (self.node >= 0))
        chain = self.backward[self.node[rows]]
        return self._by_chain(chain, self.links.step[rows], weights[rows], self.returned)


def _outermost(around: Numbers, parent: Numbers) -> Numbers:
    """For each row the outermost node around it, -1 where there is none. around: the innermost one."""
    found, rows = around.copy(), np.flatnonzero(around >= 0)
    while len(rows):
        held = parent[found[rows]]
        further = np.where(held >= 0, around[np.maximum(held, 0)], -1)
        rows, further = rows[further >= 0], further[further >= 0]
        found[rows] = further
    return found


def _made_by(events: Events, forward_ops: Mask, nodes: Ints, chain: Numbers) -> Ints:
    """The chain of the forward op that autograd made each node for: both carry the same sequence number.

    Of the ops that carry a number the last one made the node. Numbers are of the thread that ran the forward: nodes of
    other threads are left out.
    """
    made = np.flatnonzero(forward_ops & (events.sequence >= 0))
    found = np.full(len(nodes), -1, np.int64)
    if not len(made) or not len(nodes):
        return found
    number, last = np.unique(events.sequence[made][::-1], return_index=True)
    of_number = chain[made[::-1][last]]
    # Nodes that no op made carry no number.
    numbered = events.sequence[nodes] >= 0
    threads, often = np.unique(events.forward_thread[nodes[numbered]], return_counts=True)
    if len(threads):
        numbered &= events.forward_thread[nodes] == threads[np.argmax(often)]
    at = np.minimum(np.searchsorted(number, events.sequence[nodes]), len(number) - 1)
    hit = numbered & (number[at] == events.sequence[nodes])
    found[hit] = of_number[at[hit]]
    return found


def _typical_parts(work: _Work, deprofiled: Deprofiled, record: RankRecord | None) -> Deprofiled:
    """The mapping to un-profiled time for typical steps, where the given one is for the mean of all."""
    spans, parts, python = work.steps.spans, [], []
    for part, python_us in zip(deprofiled.parts, deprofiled.python_of, strict=True):
        lengths: Floats = overlap_of_each(spans[:, 0], spans[:, 1], part.spans) / 1e3
        recorded_us = float(work.typical_step(lengths[None, :])[0])
        ratio = part.plain_us / part.recorded_us if part.recorded_us else 1.0
        if work.calls.alike and record is not None:
            ratio = _typical_ratio(record, work.steps, part.name) or ratio
        parts.append(replace(part, recorded_us=recorded_us, plain_us=recorded_us * ratio))
        python.append(min(python_us, recorded_us))
    return replace(deprofiled, parts=tuple(parts), python_of=tuple(python))


def _typical_ratio(record: RankRecord, steps: Steps, part: str) -> float | None:
    """The median of a part of the step without the profiler, by that with it; None where capture timed no parts."""
    timed = record.steps
    plain, recorded = timed.unprofiled_parts_us.get(part), steps.kept(timed.profiled_parts_us.get(part, ()))
    if not plain or not len(recorded) or not np.median(recorded):
        return None
    return float(np.median(before_the_window(plain, timed)) / np.median(recorded))


def _plain(work: _Work, deprofiled: Deprofiled, backward: Floats | None) -> tuple[Floats, Floats]:
    """(low, high) µs of forward and backward without the profiler, by module."""
    calls, parts = work.calls, deprofiled.parts
    us, weights, python = [], [], []
    at = next((index for index, part in enumerate(parts) if part.name == BACKWARD or len(parts) == 1), 0)
    for index, part in enumerate(parts):
        of_part, weight = work.in_spans(part.spans), work.weights_by_part(deprofiled, index)
        if index == at and backward is not None:
            of_part, weight = of_part + backward, weight + work.weights_of_backward(deprofiled.weights)
        us.append(_rolled_up(calls, of_part))
        weights.append(_rolled_up(calls, weight))
        python.append(_rolled_up(calls, work.in_spans(intersect(part.spans, deprofiled.python))))
    none = (0.0,) * len(parts)
    ends = [deprofiled.us(Stretch(_at(us, i), none, _at(weights, i), _at(python, i))) for i in range(len(calls.paths))]
    return np.array([low for low, _ in ends]), np.array([high for _, high in ends])


def _at(columns: Sequence[Floats | None], index: int) -> tuple[float, ...]:
    return tuple(float(column[index]) if column is not None else 0.0 for column in columns)
