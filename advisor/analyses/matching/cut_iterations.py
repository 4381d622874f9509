"""A window that begins with a backward pass: its forward pass was not recorded, that of the last step has no backward.

Capture ends a step of a loop without a loader where the next backward pass begins: earlier, when the optimizer's step
returns, the profiler has not yet closed its row for that step. Of n steps the first one's backward pass then belongs to
a forward pass before the window, and the last forward pass to a backward pass behind it: whoever asks for an op and its
part of the backward pass would miss one step of n. Where the graphs are the same, these halves are taken for one
iteration.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_rows import marked_by_profiler
from advisor.trace.events import Category, Events, Ints, Numbers, Trace
from advisor.trace.op_names import AUTOGRAD_NODE

# Of the nodes so many have an op that makes such a node, if both halves are of one graph. In-place writes and functions
# of the script record nodes of other names than their ops have.
_ALIKE = 0.8
# So many of the last ops of the rarest kind are tried as what made the last node of that kind.
_TRIED = 32


def closed(trace: Trace) -> Trace:
    """The trace with sequence numbers by which the first backward pass belongs to the last forward pass.

    The same trace where the window does not begin with a backward pass, and where the two graphs differ. Of graphs that
    are alike for the most part, as those of sequences of changing lengths are, what has no pair keeps its number.
    """
    marked = marked_by_profiler(trace)
    if marked is None:
        return trace
    events = trace.events
    first, last = (_numbered(events, *map(int, marked.spans[step])) for step in (0, -1))
    nodes = events.named(AUTOGRAD_NODE)
    ops = events.of(Category.CPU_OP) & (events.thread == marked.thread) & (events.forward_thread <= 0) & ~nodes
    begun = first[ops[first]]
    most = np.iinfo(events.sequence.dtype).max
    cut = first[events.sequence[first] < events.sequence[begun].min(initial=most)]
    if not nodes[cut].any() or (len(begun) and events.start_ns[begun[0]] < events.start_ns[cut[nodes[cut]][0]]):
        return trace
    paired = np.setdiff1d(last[nodes[last]], cut)
    open_ops = last[ops[last] & (events.sequence[last] > events.sequence[paired].max(initial=-1))]
    made, asked = _coded(events, open_ops), _coded(events, _of_most(cut[nodes[cut]], events.forward_thread))
    shift = _distance(asked, made)
    if not shift:
        return trace
    # Nodes of ops that are not there keep their numbers.
    known = np.unique(asked.number[np.isin(asked.shifted(shift), made.codes)])
    numbers = events.sequence.copy()
    moved = cut[np.isin(numbers[cut], known)]
    numbers[moved] += shift
    return dataclasses.replace(trace, events=dataclasses.replace(events, sequence=numbers))


def _numbered(events: Events, start_ns: int, end_ns: int) -> Ints:
    """Rows with a sequence number that start within this time."""
    low, high = np.searchsorted(events.start_ns, (start_ns, end_ns))
    found: Ints = low + np.flatnonzero(events.sequence[low:high] >= 0)
    return found


def _of_most(rows: Ints, column: Numbers) -> Ints:
    """Those of these rows that have the most frequent value: what is recomputed has numbers of another thread."""
    values, often = np.unique(column[rows], return_counts=True)
    found: Ints = rows[column[rows] == values[np.argmax(often)]]
    return found


class _Coded(Struct, frozen=True, eq=False):
    """Rows by sequence number and kind: `aten::native_layer_norm` makes a `NativeLayerNormBackward0`.

    kind  the place of each row's kind among all kinds of the trace
    """

    number: Ints
    kind: Ints
    kinds: int

    @property
    def codes(self) -> Ints:
        """One number for each pair."""
        return self.shifted(0)

    def shifted(self, distance: int) -> Ints:
        """The same, of numbers that lie so much higher."""
        found: Ints = (self.number + distance) * self.kinds + self.kind
        return found


def _coded(events: Events, rows: Ints) -> _Coded:
    kinds = [_kind(name) for name in events.names]
    place = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
    of_name = np.array([place[kind] for kind in kinds], np.int64)
    return _Coded(events.sequence[rows].astype(np.int64), of_name[events.name[rows]], len(place))


def _kind(name: str) -> str:
    """What is left of the name of an op or of a node."""
    own = name.rpartition(":")[2].strip()
    return own.rstrip("0123456789").removesuffix("Backward").replace("_", "").lower()


def _distance(nodes: _Coded, ops: _Coded) -> int:
    """How far the numbers of nodes lie before those of the ops that make such nodes; 0 where no distance pairs most.

    Of the rarest kind of node the last one is tried with each of the last ops that make such nodes.
    """
    often = np.bincount(nodes.kind, minlength=nodes.kinds) + np.bincount(ops.kind, minlength=nodes.kinds)
    known = np.flatnonzero(np.isin(nodes.kind, ops.kind))
    if not len(known):
        return 0
    rarest = int(nodes.kind[known[np.argmin(often[nodes.kind[known]])]])
    number = int(nodes.number[nodes.kind == rarest].max())
    tried = np.unique(ops.number[ops.kind == rarest])[::-1][:_TRIED] - number
    pairs = [int(np.isin(nodes.shifted(int(distance)), ops.codes).sum()) for distance in tried]
    best = int(np.argmax(pairs))
    return int(tried[best]) if pairs[best] >= _ALIKE * len(nodes.number) else 0
