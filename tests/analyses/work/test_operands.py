"""Autograd nodes of forward ops, compared with what looking at one event after the other finds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.analyses.work.operands import (
    backward_of,
    by_dims,
    dims_of,
    have_nodes,
    nodes_of,
    sizes,
    with_backward,
    with_nodes,
)
from advisor.trace.events import Events
from advisor.trace.read.load import read_bytes

_NODE = "autograd::engine::evaluate_function: MulBackward0"
_OPS = st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=12)
_NODES = st.lists(st.integers(0, 6), max_size=6)


def made(ops: list[tuple[int, int, int]], nodes: list[int]) -> Events:
    """Ops of one thread, each with inner ones of the same number, then nodes with these sequence numbers on another."""
    rows: list[dict[str, Any]] = []

    def add(name: str, start: float, dur: float, tid: int, **args: Any) -> None:
        rows.append(
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": start, "dur": dur, "args": args}
        )

    for at, (number, inner, size) in enumerate(ops):
        numbered = {"Sequence number": number, "Fwd thread id": 0} if number >= 0 else {}
        add("aten::mul", 100.0 * at, 50.0, 1, **{"Input Dims": [[size, 4], []]})
        for k in range(inner):
            add("aten::view", 100.0 * at + 1 + k, 0.5, 1, **numbered)
    for at, number in enumerate(nodes):
        add(_NODE, 5_000.0 + at, 0.5, 2, **{"Sequence number": number, "Fwd thread id": 1})
    return read_bytes(json.dumps({"traceEvents": rows}).encode(), "made").events


def looked_up(events: Events, row: int) -> list[int]:
    """Nodes with the number of an op inside this event."""
    inside = {
        int(events.sequence[at])
        for at in range(row, len(events))
        if events.start_ns[at] <= events.end_ns[row]
        and events.thread[at] == events.thread[row]
        and events.forward_thread[at] <= 0 <= events.sequence[at]
    }
    return [at for at in range(len(events)) if "evaluate" in events.text(at) and int(events.sequence[at]) in inside]


@given(_OPS, _NODES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nodes_are_those_with_the_numbers_of_ops_inside(ops: list[tuple[int, int, int]], nodes: list[int]) -> None:
    events = made(ops, nodes)
    rows = np.flatnonzero(events.exactly("aten::mul"))
    each = [looked_up(events, row) for row in rows.tolist()]
    assert backward_of(events, rows).tolist() == sorted({node for found in each for node in found})
    for row, found in zip(rows, each, strict=True):
        assert backward_of(events, np.array([row])).tolist() == found
    assert have_nodes(events, rows, rows).tolist() == [bool(found) for found in each]
    assert nodes_of(events, rows, rows).tolist() == backward_of(events, rows).tolist()
    assert with_backward(events, rows).tolist() == sorted({*rows.tolist(), *backward_of(events, rows).tolist()})
    assert with_nodes(events, rows, rows).tolist() == with_backward(events, rows).tolist()


def test_nodes_of_an_op_that_recorded_nothing_begin_before_those_of_the_next() -> None:
    # The first op contains one with the number that the second op recorded: the node is the second's.
    events = made([(0, 1, 1), (0, 1, 1)], [0])
    rows = np.flatnonzero(events.exactly("aten::mul"))
    own = np.flatnonzero(events.exactly("aten::mul", "aten::view"))
    assert have_nodes(events, own, rows[:1]).tolist() == [False]
    assert len(nodes_of(events, own, rows[:1])) == 0
    assert len(backward_of(events, rows[:1])) == 1


@given(_OPS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_dims_are_asked_once_for_each_text(ops: list[tuple[int, int, int]]) -> None:
    events = made(ops, [])
    rows = np.flatnonzero(events.exactly("aten::mul"))
    asked: list[Any] = []

    def first(dims: list[Any]) -> int:
        asked.append(dims)
        return sizes(dims, 0)[0]

    assert by_dims(events, rows, first).tolist() == [sizes(dims_of(events, row), 0)[0] for row in rows.tolist()]
    assert len(asked) == len({size for _, _, size in ops})


def test_no_rows_have_no_dims() -> None:
    events = made([(0, 0, 1)], [])
    assert len(by_dims(events, np.empty(0, np.int64), len)) == 0
