"""A window that begins with a backward pass: its forward pass was not recorded, that of the last step has no backward.

Capture ends a step of a loop without a loader where the next backward pass begins (when the optimizer's step returns,
its row is still open). Of n steps the first one's backward pass then belongs to a forward pass before the window, and
the last forward pass to a backward pass behind it: whoever asks for an op and its part of the backward pass would miss
one step of n. Where the graphs are the same, these halves are taken for one iteration.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict

import numpy as np

from advisor.analyses.base.step_rows import marked_by_profiler
from advisor.trace.events import Category, Events, Ints, Trace
from advisor.trace.op_names import AUTOGRAD_NODE

# Of the nodes so many have an op that makes such a node, if both halves are of one graph. In-place writes and functions
# of the script record nodes of other names than their ops have.
_ALIKE = 0.8
# So many ops of the rarest kind are tried as what made the rarest node.
_TRIED = 32

# The numbers of nodes, or of ops that record one, with what such a node is called.
_Kinds = set[tuple[int, str]]


def closed(trace: Trace) -> Trace:
    """The trace with sequence numbers by which the first backward pass belongs to the last forward pass.

    The same trace where the window does not begin with a backward pass, and where the two graphs differ, as those of
    sequences of changing lengths do.
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
    shift = _distance(_kinds(events, cut[nodes[cut]]), _kinds(events, open_ops))
    if not shift:
        return trace
    numbers = events.sequence.copy()
    numbers[cut] += shift
    return dataclasses.replace(trace, events=dataclasses.replace(events, sequence=numbers))


def _numbered(events: Events, start_ns: int, end_ns: int) -> Ints:
    """Rows with a sequence number that start within this time."""
    low, high = np.searchsorted(events.start_ns, (start_ns, end_ns))
    found: Ints = low + np.flatnonzero(events.sequence[low:high] >= 0)
    return found


def _kinds(events: Events, rows: Ints) -> _Kinds:
    """(sequence number, kind) of these rows: `aten::native_layer_norm` makes a `NativeLayerNormBackward0`."""
    kinds = {name: _kind(events.names[name]) for name in np.unique(events.name[rows]).tolist()}
    return {(int(events.sequence[row]), kinds[int(events.name[row])]) for row in rows.tolist()}


def _kind(name: str) -> str:
    """What is left of the name of an op or of a node."""
    own = name.rpartition(":")[2].strip()
    return own.rstrip("0123456789").removesuffix("Backward").replace("_", "").lower()


def _distance(nodes: _Kinds, ops: _Kinds) -> int:
    """How far the numbers of nodes lie before those of the ops that make such nodes; 0 where no distance pairs most."""
    made: dict[str, list[int]] = defaultdict(list)
    for number, kind in ops:
        made[kind].append(number)
    known = [one for one in nodes if one[1] in made]
    if not known:
        return 0
    often = Counter(kind for _, kind in known)
    number, kind = min(known, key=lambda one: (often[one[1]] + len(made[one[1]]), -one[0]))

    def pairs(distance: int) -> int:
        return sum((number + distance, kind) in ops for number, kind in known)

    best = max((one - number for one in sorted(made[kind], reverse=True)[:_TRIED]), key=pairs)
    return best if pairs(best) >= _ALIKE * len(nodes) else 0
