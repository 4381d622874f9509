"""Ops of the profiled steps that work for nothing but numbers of Python: metrics and logs of what the step computed."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.dataflow.needs import Needs
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.trace.events import Ints, Mask, Trace


class SideResults(Struct, frozen=True, eq=False):
    """Ops whose results no op of the training reads, and that read what the forward pass of the same step made.

    The results of such ops end in single numbers for Python, or in other such ops. None of them is in a backward pass,
    an optimizer's step or a fetch, and no backward pass goes through what they recorded.

    ops  their rows, in order of start, without the reads of numbers themselves (`item`): on a device those wait
    """

    ops: Ints

    @classmethod
    def compute(cls, trace: Trace, observed: ObservedOps, needs: Needs) -> SideResults:
        """The rows. Missing where it is not known what the training needs."""
        chosen: dict[bytes, Mask] = {}
        found = []
        for needed, rows in zip(needs.needed, observed.places, strict=True):
            if (same := needed.tobytes()) not in chosen:
                chosen[same] = _of_the_step(needed.tolist(), needs.live.tolist(), needs.sources)
            found.append(rows[chosen[same]])
        rows = np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
        return cls(rows[~trace.events.exactly("aten::item")[rows]])


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
