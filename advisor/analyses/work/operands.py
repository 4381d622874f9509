"""Shapes and dtypes of ops' inputs, and the backward nodes that belong to forward ops."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.analyses.base.steps import Steps
from advisor.trace.events import Events, Ints, Mask
from advisor.trace.numbers import distinct_pairs, numbered
from advisor.trace.op_names import AUTOGRAD_NODE


def dims_of(events: Events, row: int) -> list[Any]:
    """`Input Dims` of an event: a list of sizes for each tensor, a list of such lists for each list of tensors."""
    return _parsed(events.dims_table, int(events.dims[row]))


def dtypes_of(events: Events, row: int) -> list[Any]:
    """`Input type` of an event, one string for each input; empty if not recorded."""
    return _parsed(events.dtypes_table, int(events.dtypes[row]))


def _parsed(table: tuple[str, ...], index: int) -> list[Any]:
    return list(_list(table[index])) if index >= 0 else []


@functools.lru_cache(maxsize=4096)
def _list(text: str) -> list[Any]:
    """The list that a text of the trace is; empty for what is none. Rows repeat the same few hundred texts."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def sizes(dims: list[Any], position: int) -> tuple[int, ...]:
    """The shape of the tensor at that position; empty if it is not a tensor."""
    shape = dims[position] if position < len(dims) else []
    plain = isinstance(shape, list) and all(isinstance(size, int) for size in shape)
    return tuple(shape) if plain else ()


def by_dims(events: Events, rows: Ints, ask: Callable[[list[Any]], Any]) -> npt.NDArray[Any]:
    """What `ask` says of the `Input Dims` of each row; it is asked once for each text of the trace."""
    texts, which = numbered(events.dims[rows])
    return np.array([ask(_parsed(events.dims_table, text)) for text in texts.tolist()])[which]


def shapes_in(dims: Sequence[object]) -> Iterator[str]:
    """Each shape in these `Input Dims`, including those in lists of tensors, as text."""
    for one in dims:
        lists = isinstance(one, list) and one and isinstance(one[0], list)
        yield from (str(shape) for shape in (one if isinstance(one, list) and lists else [one]))


def backward_of(events: Events, rows: Ints) -> Ints:
    """The autograd nodes that ops inside these events recorded: the outermost ones, in order of start."""
    return np.unique(_nodes_by_row(events, rows)[1])


def with_backward(events: Events, rows: Ints) -> Ints:
    """These events and the autograd nodes that ops inside them recorded (`backward_of`), in order of start."""
    return np.union1d(rows, backward_of(events, rows))


def times_gone_through(events: Events, steps: Steps) -> tuple[Ints, Ints]:
    """Nodes of the backward pass in the steps, and how often each step runs the node of the same forward op."""
    step = steps.step_of(events.start_ns)
    rows: Ints = np.flatnonzero(events.named(AUTOGRAD_NODE) & (events.sequence >= 0) & (step >= 0))
    if not len(rows):
        return rows, rows
    _, begun = distinct_pairs(step[rows], events.forward_thread[rows])
    _, op = distinct_pairs(begun, events.sequence[rows])
    return rows, np.bincount(op)[op]


def nodes_of(events: Events, ops: Ints, rows: Ints) -> Ints:
    """The same for outermost ops only, some of which recorded nothing: these have the number of the next that did.

    ops: the outermost ops of the thread, in order of start.
    """
    return np.unique(_own_nodes(events, ops, rows)[1])


def with_nodes(events: Events, ops: Ints, rows: Ints) -> Ints:
    """These outermost ops and the autograd nodes that they recorded (`nodes_of`), in order of start."""
    return np.union1d(rows, nodes_of(events, ops, rows))


def have_nodes(events: Events, ops: Ints, rows: Ints) -> Mask:
    """For each of these outermost ops, whether `nodes_of` finds a node for it."""
    found = np.zeros(len(rows), bool)
    found[_own_nodes(events, ops, rows)[0]] = True
    return found


def _own_nodes(events: Events, ops: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """As `_nodes_by_row`, without nodes of later ops."""
    ours = ops[(events.sequence[ops] >= 0) & (events.forward_thread[ops] <= 0)]
    at, nodes = _nodes_by_row(events, rows)
    later = np.append(events.sequence[ours], np.iinfo(np.int64).max)[np.searchsorted(ours, rows, side="right")]
    own = events.sequence[nodes] < later[at]
    return at[own], nodes[own]


def _nodes_by_row(events: Events, rows: Ints) -> tuple[Ints, Ints]:
    """Pairs of a place in `rows` and an autograd node that ops recorded while that event lasted, on its thread."""
    # Rows are sorted by start, so what lies inside a row follows it.
    stops = np.searchsorted(events.start_ns, events.end_ns[rows], side="right")
    inside, at = _ranges(rows, stops)
    own = (events.thread[inside] == events.thread[rows][at]) & (events.forward_thread[inside] <= 0)
    own &= events.sequence[inside] >= 0
    nodes, theirs = events.by_sequence(AUTOGRAD_NODE)
    numbers = events.sequence[inside[own]]
    found, of = _ranges(*(np.searchsorted(theirs, numbers, side=side) for side in ("left", "right")))
    return at[own][of], nodes[found]


def _ranges(first: Ints, behind: Ints) -> tuple[Ints, Ints]:
    """All integers from each `first` up to its `behind`, and the place of that pair for each integer."""
    counts = behind - first
    place = np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(place)) + (first - np.cumsum(counts) + counts)[place], place
