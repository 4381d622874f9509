"""Which ops of the profiled steps read what an op made, as the observed step told."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.computed import Missing
from advisor.trace.events import Events, Ints, Trace
from advisor.trace.op_names import AUTOGRAD_NODE

_UPDATE = "Optimizer.step#"
# Ops that look at a tensor in another form: what reads their result reads what they look at. Where one had to copy, it
# has readers of its own.
_VIEWS = frozenset(
    f"aten::{name}"
    for names in (
        ("view", "view_as", "reshape", "reshape_as", "_unsafe_view", "flatten", "unflatten", "contiguous", "detach"),
        ("select", "slice", "narrow", "unbind", "split", "split_with_sizes", "chunk", "tensor_split", "as_strided"),
        ("unsqueeze", "squeeze", "t", "transpose", "permute", "movedim", "swapaxes", "moveaxis", "numpy_T", "alias"),
        ("expand", "expand_as", "broadcast_to", "broadcast_tensors", "diagonal", "unfold", "real", "imag", "to"),
    )
    for name in names
)


class Readers(Struct, frozen=True, eq=False):
    """The ops that read each op's result, except in the backward pass and in optimizers.

    rows     the outermost ops of the loop's thread, in order of start
    readers  for each op of the observed step the places of the ops that read its result
    at       row -> (which profiled step, place in the observed step)
    places   for each profiled step the event of each place, -1 if not known
    """

    rows: Ints
    readers: tuple[tuple[int, ...], ...]
    at: dict[int, tuple[int, int]]
    places: tuple[Ints, ...]
    events: Events

    @classmethod
    def compute(cls, trace: Trace, nesting: Nesting, observed: ObservedOps) -> Readers:
        """The readers. Missing if no steps were observed."""
        waits = observed.seen.waits
        if len(waits) != len(observed.seen.ops) or not observed.places:
            raise Missing(
                "it was not recorded which ops read the results of others; capture the run with `advisor run`"
            )
        readers: list[list[int]] = [[] for _ in waits]
        for place, backs in enumerate(waits):
            for back in backs:
                if back:
                    readers[place - back].append(place)
        elsewhere = nesting.within(trace.events.named(AUTOGRAD_NODE, _UPDATE))
        at: dict[int, tuple[int, int]] = {}
        places = []
        for step, rows in enumerate(observed.places):
            known = np.where((rows >= 0) & ~elsewhere[rows], rows, -1)
            places.append(known)
            at |= {int(row): (step, place) for place, row in enumerate(known.tolist()) if row >= 0}
        return cls(observed.rows, tuple(map(tuple, readers)), at, tuple(places), trace.events)

    def of(self, row: int) -> list[int]:
        """Events of the ops that read this one's result, except views of it; empty if not known."""
        if row not in self.at:
            return []
        step, place = self.at[row]
        found = []
        for reader in self.readers[place]:
            its = int(self.places[step][reader])
            if its < 0:
                continue  # of the backward pass, or an optimizer's
            if self.readers[reader] or self.events.text(its) not in _VIEWS:
                found.append(its)
        return found

    def looks(self, row: int) -> list[int]:
        """Events of all ops that read this one's result or make views of it."""
        step, place = self.at.get(row, (0, -1))
        rows = [int(self.places[step][reader]) for reader in self.readers[place]] if place >= 0 else []
        return [one for one in rows if one >= 0]
