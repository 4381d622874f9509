"""The call tree of host rows against a search that looks at every earlier row, rows that overlap included."""

import dataclasses

import numpy as np
import pytest

from advisor.analyses.base.launched import Launched
from advisor.analyses.base.nesting import HOST_ROWS, Nesting
from advisor.trace.events import Category
from advisor.trace.read.load import read_bytes

EMPTY = read_bytes(
    b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}', ""
)


def trace_of(rng, count, span):
    """A trace of random rows on three threads, a few of them device work; names and links are random, too."""
    start = np.sort(rng.integers(0, span, count))
    dur = rng.integers(0, max(span // int(rng.integers(1, 8)), 2), count)
    order = np.lexsort((-dur, start))
    columns = {
        field.name: getattr(EMPTY.events, field.name) for field in dataclasses.fields(EMPTY.events) if field.init
    }
    for name, column in columns.items():
        if isinstance(column, np.ndarray):
            columns[name] = np.full(count, -1, column.dtype)
    kinds = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME, Category.PYTHON, Category.KERNEL)
    columns |= {
        "start_ns": start[order],
        "dur_ns": dur[order],
        "name": np.zeros(count, np.int32),
        "category": rng.choice(kinds, count).astype(np.int8),
        "thread": rng.integers(0, 3, count).astype(np.int32),
        "correlation": rng.integers(-1, max(count // 2, 1), count),
        "threads": EMPTY.events.threads * 3,
    }
    return dataclasses.replace(EMPTY, events=type(EMPTY.events)(**columns))


def parent_of(events, row, host):
    """The nearest earlier host row of the thread that ends no earlier; -1 for none."""
    for other in range(row - 1, -1, -1):
        if host[other] and events.thread[other] == events.thread[row] and events.end_ns[other] >= events.end_ns[row]:
            return other
    return -1


@pytest.mark.parametrize("seed", range(40))
def test_parents_and_ancestors(seed):
    rng = np.random.default_rng(seed)
    events = (trace := trace_of(rng, int(rng.integers(1, 70)), int(rng.choice((10, 60, 5000))))).events
    host, nesting = events.of(*HOST_ROWS), Nesting.compute(trace)
    parent = [parent_of(events, row, host) if host[row] else -1 for row in range(len(events))]
    assert nesting.parent.tolist() == parent
    for share in (0.0, 0.05, 0.4):
        found = rng.random(len(events)) < share
        nearest = []
        for row in range(len(events)):
            at = row
            while at >= 0 and not found[at]:
                at = parent[at]
            nearest.append(at)
        assert nesting.ancestor(found).tolist() == nearest
        rows = rng.integers(-1, len(events), 30)
        assert nesting.ancestor_of(rows, found).tolist() == [nearest[row] if row >= 0 else -1 for row in rows]
        assert nesting.within(found).tolist() == [row >= 0 for row in nearest]
    assert sorted(nesting.holders.tolist()) == sorted({at for at in parent if at >= 0})


@pytest.mark.parametrize("seed", range(40))
def test_the_outermost_op(seed):
    rng = np.random.default_rng(seed)
    trace = trace_of(rng, int(rng.integers(1, 70)), 200)
    nesting, is_op = Nesting.compute(trace), trace.events.of(Category.CPU_OP)
    for row, outer in enumerate(nesting.outer_op.tolist()):
        expected, at = (row if is_op[row] else -1), row
        while (at := int(nesting.parent[at])) >= 0 and is_op[at]:
            expected = at
        assert outer == expected


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_launches(seed, shared):
    rng = np.random.default_rng(seed)
    trace = trace_of(rng, 60, 500)
    events = trace.events
    calls = np.flatnonzero(events.of(Category.RUNTIME))
    if not shared:
        events.correlation[calls] = rng.permutation(len(calls)) + 1
    works = trace.device_work & (events.correlation > 0)
    launch = Launched.compute(trace).launch
    for row in range(len(events)):
        same = [call for call in calls if works[row] and events.correlation[call] == events.correlation[row]]
        before = [call for call in same if events.start_ns[call] <= events.start_ns[row]]
        assert launch[row] == (before[-1] if before else same[0] if same else -1)
