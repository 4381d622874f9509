"""Ops whose results the training needs, or may need: all others work for nothing but numbers of Python."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.analyses.dataflow.passes.forwards_without_backward import live_ops
from advisor.computed import Missing
from advisor.trace.events import Mask, Trace
from advisor.trace.op_names import AUTOGRAD_NODE

_ELSEWHERE = (AUTOGRAD_NODE, "Optimizer.step#", "enumerate(DataLoader)#")


class Needs(Struct, frozen=True, eq=False):
    """For the ops of the observed step, by their places in it.

    sources  for each op those whose results it reads; a reader in the next step counts, too
    live     whether a backward pass goes through what it recorded
    needed   for each profiled step, and each op in it: whether it is live, in a backward pass, an optimizer's step or a
             fetch, or leaves the step as more than one number, or whether such an op reads its result; or is not known
    """

    sources: list[list[int]]
    live: Mask
    needed: list[Mask]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting, observed: ObservedOps) -> Needs:
        """Raises Missing where it was not observed which tensors ops read."""
        seen = observed.seen
        if seen.leaving is None or len(seen.waits) != len(seen.ops) or any(0 in waits for waits in seen.waits):
            raise Missing("it was not recorded where the results of ops go; capture the run with `advisor run`")
        events = trace.events
        trained = np.zeros(len(events), bool)
        trained[live_ops(trace, steps, nesting)] = True
        trained = nesting.within(trained)
        elsewhere = nesting.within(events.named(*_ELSEWHERE))
        sources = [[at - back for back in backs] for at, backs in enumerate(seen.waits)]
        for made, reader in seen.onward:
            sources[reader].append(made)
        known = [(rows >= 0) & ~elsewhere[rows] for rows in observed.places]
        # What the last op of the window recorded is not seen in it, but in the steps before.
        live = np.zeros(len(sources), bool)
        for here, rows in zip(known, observed.places, strict=True):
            live |= here & trained[rows]
        chosen: dict[bytes, Mask] = {}  # the steps of a window know the same ops, but for a few
        for here in known:
            if (same := here.tobytes()) not in chosen:
                chosen[same] = _needed(np.flatnonzero(~here | live).tolist() + seen.leaving, sources)
        return cls(sources, live, [chosen[here.tobytes()] for here in known])


def _needed(needed: list[int], sources: list[list[int]]) -> Mask:
    """For each op whether it is one of these, or one whose results they read."""
    found = np.zeros(len(sources), bool)
    found[needed] = True
    while needed:
        new = [source for source in sources[needed.pop()] if not found[source]]
        found[new] = True
        needed += new
    return found
