"""Look-ups in tables that follow each other, and their part of the backward pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import AUTOGRAD_NODE, GRADIENT_STORE, Events, Intervals, Ints, StepOps, dims_of, sizes, union

# With 8 MB of tables one call for all was slower than one for each; with half a megabyte it took a third.
MOST_BYTES = 2e6
# What lies between two look-ups of one row of them: how a column is taken and made an index.
_BETWEEN = ("aten::select", "aten::slice", "aten::unbind", "aten::squeeze", "aten::to", "aten::long", "aten::view")
# Python between two of them takes less.
_LONGEST_GAP_NS = 200_000


def runs_of_look_ups(recorded: StepOps) -> Iterator[Ints]:
    """Look-ups that follow each other with nothing but views between them: of one width, for equally many indices."""
    events, ops = recorded.events, recorded.outermost
    lookups = events.exactly("aten::embedding")
    run: list[int] = []
    form: object = None
    for row in ops[~events.exactly(*_BETWEEN)[ops]].tolist():
        mine = _form(events, row) if lookups[row] else None
        if run and (mine != form or events.start_ns[row] - events.end_ns[run[-1]] > _LONGEST_GAP_NS):
            yield np.array(run, np.int64)
            run = []
        if mine is not None:
            run.append(row)
        form = mine
    if run:
        yield np.array(run, np.int64)


def _form(events: Events, row: int) -> object:
    dims = dims_of(events, row)
    table = sizes(dims, 0)
    return (table[1], sizes(dims, 1)) if len(table) == 2 else None


def bytes_of(events: Events, rows: Ints) -> float:
    """What the tables of these look-ups take, counted as fp32."""
    return float(sum(4 * np.prod(sizes(dims_of(events, row), 0)) for row in rows.tolist()))


class LookUps(Struct, frozen=True, eq=False):
    """What look-ups one by one take.

    rows     the ops from the first to the last look-up of each row of them, and the engine's calls of their nodes
    spans    from the first to the last of these, each row of them for itself
    stores   gradients of these tables that are stored;  of_parameters: their share of all that are stored
    """

    rows: Ints
    spans: Intervals
    stores: int
    of_parameters: float

    @classmethod
    def of(cls, recorded: StepOps, found: list[Ints]) -> LookUps | None:
        """What these runs of look-ups take; None without any."""
        events, nesting, ops = recorded.events, recorded.nesting, recorded.outermost
        if not found:
            return None
        rows = np.concatenate(found)
        nodes = np.flatnonzero(events.named(AUTOGRAD_NODE) & np.isin(events.sequence, events.sequence[rows]))
        calls = np.flatnonzero(events.named(AUTOGRAD_NODE) | events.exactly(GRADIENT_STORE))
        calls = calls[nesting.outer_op[calls] == calls]
        stores = nesting.outer_op[events.exactly(GRADIENT_STORE)]
        at = np.searchsorted(calls, nodes) + 1
        behind = calls[np.minimum(at, len(calls) - 1)] if len(calls) else calls
        behind = behind[np.isin(behind, stores)]
        # Engine calls one behind the other, with what the engine does between them.
        mine = np.flatnonzero(np.isin(calls, np.concatenate((nodes, behind))))
        runs = [calls[one] for one in np.split(mine, np.flatnonzero(np.diff(mine) > 1) + 1) if len(one)]
        starts = np.array([events.start_ns[one[0]] for one in (*found, *runs)], np.int64)
        spans = union(starts, np.array([events.end_ns[one[-1]] for one in (*found, *runs)], np.int64))
        among = [ops[np.searchsorted(ops, one[0]) : np.searchsorted(ops, one[-1], "right")] for one in found]
        return cls(np.concatenate((*among, *runs)), spans, len(behind), len(behind) / max(len(np.unique(stores)), 1))
