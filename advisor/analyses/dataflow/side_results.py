"""Ops of the profiled steps that work for nothing but numbers of Python: metrics and logs of what the step computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        reads = [[at - back for back in backs] for at, backs in enumerate(seen.waits)]
        known = [(rows >= 0) & ~elsewhere[rows] for rows in observed.places]
        # What the last op of the window recorded is not seen in it, but in the steps before.
        live = np.any([here & trained[rows] for here, rows in zip(known, observed.places, strict=True)], axis=0)
        found = []
        for here, rows in zip(known, observed.places, strict=True):
            needed = _needed(~here | live, seen.leaving, reads, seen.onward)
            found.append(rows[_of_the_step(needed, live, reads, seen.onward)])
        rows = np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
        return cls(rows[~events.exactly("aten::item")[rows]])


def _needed(needed: Mask, leaving: Sequence[int], reads: list[list[int]], onward: Iterable[tuple[int, int]]) -> Mask:
    """Ops that the training needs, or may need: these, and all whose results they read, in this step or the next."""
    needed = needed.copy()
    needed[np.asarray(leaving, np.int64)] = True
    before = -1
    while (count := int(needed.sum())) != before:
        before = count
        for at in reversed(range(len(reads))):
            if needed[at]:
                needed[reads[at]] = True
        for at, reader in onward:
            needed[at] |= needed[reader]
    return needed


def _of_the_step(needed: Mask, live: Mask, reads: list[list[int]], onward: Iterable[tuple[int, int]]) -> Mask:
    """Of the ops that nothing needs, those that read what the forward pass made, and what works for these alone."""
    found = np.zeros(len(reads), bool)
    readers: list[list[int]] = [[] for _ in reads]
    carried: list[list[int]] = [[] for _ in reads]
    for source, reader in onward:
        carried[reader].append(source)
    for at, sources in enumerate(a + b for a, b in zip(reads, carried, strict=True)):
        found[at] = not needed[at] and bool((live[sources] | found[sources]).any())
        for source in sources:
            readers[source].append(at)
    for at in reversed(range(len(reads))):
        found[at] |= not needed[at] and bool(readers[at]) and bool(found[readers[at]].all())
    return found
