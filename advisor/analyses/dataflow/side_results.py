"""Ops of the profiled steps that work for nothing but numbers of Python: metrics and logs of what the step computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.dataflow.forwards_without_backward import live_ops
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.computed import Missing
from advisor.trace.events import Ints, Mask, Trace
from advisor.trace.op_names import AUTOGRAD_NODE

_ELSEWHERE = (AUTOGRAD_NODE, "Optimizer.step#", "enumerate(DataLoader)#")


@dataclass(frozen=True, slots=True, eq=False)
class SideResults:
    """Ops whose results no op of the training reads, and that read what the forward pass of the same step made.

    The results of such ops end in single numbers for Python, or in other such ops. None of them is in a backward pass,
    an optimizer's step or a fetch, and no backward pass goes through what they recorded.

    ops  their rows, in order of start, without the reads of numbers themselves (`item`): on a device those wait
    """

    ops: Ints

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting, observed: ObservedOps) -> SideResults:
        """The rows. Raises Missing where it was not observed which tensors ops read."""
        seen = observed.seen
        if seen.leaving is None or len(seen.waits) != len(seen.ops) or any(0 in waits for waits in seen.waits):
            raise Missing("it was not recorded where the results of ops go; capture the run with `advisor run`")
        events = trace.events
        trained = np.zeros(len(events), bool)
        trained[live_ops(trace, steps, nesting)] = True
        trained = nesting.ancestor(trained) >= 0
        elsewhere = nesting.ancestor(events.named(*_ELSEWHERE)) >= 0
        sources = [[at - back for back in backs] for at, backs in enumerate(seen.waits)]
        for made, reader in seen.onward:
            sources[reader].append(made)
        known = [(rows >= 0) & ~elsewhere[rows] for rows in observed.places]
        # What the last op of the window recorded is not seen in it, but in the steps before.
        live = np.any([here & trained[rows] for here, rows in zip(known, observed.places, strict=True)], axis=0)
        chosen: dict[bytes, Mask] = {}  # the steps of a window know the same ops, but for a few
        found = []
        for here, rows in zip(known, observed.places, strict=True):
            if (same := here.tobytes()) not in chosen:
                needed = _needed(np.flatnonzero(~here | live).tolist() + seen.leaving, sources)
                chosen[same] = _of_the_step(needed, live.tolist(), sources)
            found.append(rows[chosen[same]])
        rows = np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
        return cls(rows[~events.exactly("aten::item")[rows]])


def _needed(needed: list[int], sources: list[list[int]]) -> list[bool]:
    """For each op whether the training needs it, or may: these, and all whose results they read."""
    found = [False] * len(sources)
    for at in needed:
        found[at] = True
    while needed:
        new = [source for source in sources[needed.pop()] if not found[source]]
        for source in new:
            found[source] = True
        needed += new
    return found


def _of_the_step(needed: list[bool], live: list[bool], sources: list[list[int]]) -> Mask:
    """Of the ops that nothing needs, those that read what the forward pass made, and what works for these alone."""
    found = [False] * len(sources)
    readers: list[list[int]] = [[] for _ in sources]
    for at, given in enumerate(sources):
        found[at] = not needed[at] and any(live[source] or found[source] for source in given)
        for source in given:
            readers[source].append(at)
    for at in reversed(range(len(sources))):
        found[at] = found[at] or (not needed[at] and bool(readers[at]) and all(found[reader] for reader in readers[at]))
    return np.array(found, bool)
