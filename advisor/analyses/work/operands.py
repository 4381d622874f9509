"""Shapes and dtypes of ops' inputs, and the backward nodes that belong to forward ops."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.trace.events import Events

_NODE = "autograd::engine::evaluate_function"


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


def shapes_in(dims: Sequence[object]) -> Iterator[str]:
    """Each shape in these `Input Dims`, including those in lists of tensors, as text."""
    for one in dims:
        lists = isinstance(one, list) and one and isinstance(one[0], list)
        yield from (str(shape) for shape in (one if isinstance(one, list) and lists else [one]))


def backward_of(events: Events, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The autograd nodes that ops inside these events recorded: the outermost ones, in order of start."""
    inside = np.zeros(len(events), bool)
    for row in rows.tolist():
        # Rows are sorted by start, so what lies inside a row follows it.
        stop = int(np.searchsorted(events.start_ns, events.start_ns[row] + events.dur_ns[row], side="right"))
        inside[row:stop] |= events.thread[row:stop] == events.thread[row]
    numbers = events.sequence[inside & (events.forward_thread <= 0) & (events.sequence >= 0)]
    nodes = events.named(_NODE) & np.isin(events.sequence, numbers) & (events.sequence >= 0)
    return np.flatnonzero(nodes).astype(np.int64)


def nodes_of(events: Events, ops: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same for outermost ops only, some of which recorded nothing: these have the number of the next that did.

    ops: the outermost ops of the thread, in order of start.
    """
    ours = ops[(events.sequence[ops] >= 0) & (events.forward_thread[ops] <= 0)]
    found = [np.empty(0, np.int64)]
    for row in rows.tolist():
        behind = ours[np.searchsorted(ours, row, side="right") :][:1]
        nodes = backward_of(events, np.array([row], np.int64))
        found.append(nodes[events.sequence[nodes] < events.sequence[behind[0]]] if len(behind) else nodes)
    return np.unique(np.concatenate(found))
