"""Look-ups in columns, against the same done one by one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analyses.base.classify import is_communication
from advisor.analyses.base.nesting import nearest
from advisor.analyses.base.steps import Steps
from advisor.trace.events import Category
from advisor.trace.numbers import distinct_pairs, looked_up
from advisor.trace.read import store
from advisor.trace.read.extract import COLUMNS
from advisor.trace.read.load import read_bytes
from advisor.trace.read.store import Store

small = st.integers(-1, 4)


@given(st.lists(st.tuples(small, st.integers(-(2**62), 2**62) | small)))
def test_distinct_pairs_are_those_of_sorted_rows(rows: list[tuple[int, int]]) -> None:
    first, second = np.array(rows, np.int64).reshape(-1, 2).T
    pairs, index = distinct_pairs(first.astype(np.int32), second)
    assert [tuple(pair) for pair in pairs.tolist()] == sorted(set(rows))
    assert [tuple(pairs[i].tolist()) for i in index] == rows


parts = st.lists(
    st.tuples(st.integers(0, 5), st.sets(st.sampled_from([name for name in COLUMNS if name != "start_ns"]))), max_size=8
)


@given(parts, st.integers(1, 8), st.sampled_from([0.0, 1e-12, 0.3, 1.0]))
def test_columns_of_slices_are_joined_and_what_is_absent_is_minus_one(
    made: list[tuple[int, set[str]]], room: int, share: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "FIRST_ROWS", room)
        kept, expected = Store(COLUMNS, "start_ns", lambda: share), {name: [] for name in COLUMNS}  # type: Any
        value = 0
        for count, names in made:
            part: dict[str, Any] = {}
            for name, kind in COLUMNS.items():
                values = [(value := value + 1) % 100 for _ in range(count)] if name in {*names, "start_ns"} else None
                if values is not None:
                    part[name] = np.array(values, kind)
                expected[name] += values if values is not None else [-1] * count
            kept.add(part)
        taken = kept.take()
    assert {name: column.tolist() for name, column in taken.items()} == expected
    assert {name: column.dtype for name, column in taken.items()} == {n: np.dtype(kind) for n, kind in COLUMNS.items()}
    assert kept.take()["start_ns"].tolist() == []


@pytest.mark.parametrize(("share", "room"), [(0.0, 2_000), (0.1, 12_500), (1e-12, 32_000), (1.0, 2_000)])
def test_room_is_made_for_what_the_whole_file_will_hold(share: float, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "FIRST_ROWS", 1)
        kept = Store({"start_ns": np.int64}, "start_ns", lambda: share)
        kept.add({"start_ns": np.arange(1_000)})
        whole = kept.take()["start_ns"].base
    assert whole is not None
    assert len(whole) == room


numbers = st.sampled_from([-1, 0, 2**14 - 1, 2**14, -(2**14), -(2**14) - 1, 2**30 - 1, 2**30, -(2**30) - 1, 2**62])


@given(st.lists(st.lists(numbers, max_size=3), max_size=6))
def test_a_narrow_column_takes_as_many_bits_as_its_largest_value_needs(parts: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "FIRST_ROWS", 2)
        kept = Store({"start_ns": np.int64, "id": np.int64}, "start_ns", narrow=("id",))
        for part in parts:
            kept.add({"start_ns": np.zeros(len(part), np.int64), "id": np.array(part, np.int64)})
        found = kept.take()["id"]
    values = [value for part in parts for value in part]
    bits = max([4, *(4 if -(2**30) <= value < 2**30 else 8 for value in values)])
    assert (found.tolist(), found.itemsize) == (values, bits)


@given(st.lists(st.integers(-1, 9)), st.integers(1, 4))
def test_many_are_looked_up_as_take_does(indices: list[int], piece: int) -> None:
    table, rows = np.arange(10) * 3, np.array(indices, np.int16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("advisor.trace.numbers._PIECE", piece)
        assert looked_up(table, rows).tolist() == table.take(rows.astype(np.int64)).tolist()


@given(st.lists(st.integers(0, 60)), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=5))
def test_the_step_of_an_instant_is_the_same_in_any_order(times: list[int], gaps: list[tuple[int, int]]) -> None:
    spans, at = [], 0
    for length, pause in gaps:
        spans.append((at, at + length))
        at += length + pause
    window = np.array([[spans[0][0], spans[-1][1]]], np.int64)
    steps = Steps(np.array(spans, np.int64), (), window, window, 1.0, "user", len(spans), 0, 0, ())
    found = steps.step_of(np.array(sorted(times), np.int64)).tolist()
    assert found == [steps.step_of(np.array([time, -1], np.int64))[0] for time in sorted(times)]
    for time, index in zip(sorted(times), found, strict=True):
        inside = spans[0][0] <= time < spans[-1][1]
        assert index == (max(i for i, (start, _) in enumerate(spans) if start <= time) if inside else -1)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.booleans()), max_size=40))
def test_the_nearest_ancestor_is_the_first_on_the_way_up(rows: list[tuple[float, bool, bool]]) -> None:
    parent = [int(part * i) if i and linked else -1 for i, (part, linked, _) in enumerate(rows)]
    parent = [up if up < i else -1 for i, up in enumerate(parent)]
    wanted = [hit for _, _, hit in rows]
    expected = []
    for start in range(len(rows)):
        row = start
        while row >= 0 and not wanted[row]:
            row = parent[row]
        expected.append(row)
    assert nearest(np.array(parent, np.int64), np.array(wanted, bool)).tolist() == expected


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_f32",
        "RCCL",
        "oneccl_allreduce",
        "hccl::send",
        "xccl",
        "nvshmem_barrier",
        "rocshmem_put",
        "void deep_ep::dispatch",
        "DeepEP::combine",
        "dpsk::ep",
        "internode::combine",
        "intranode::dispatch",
        "multimem_all_reduce_kernel",
        "one_shot_all_reduce",
        "two_shot_allreduce",
        "vllm::cross_device_reduce_1stage",
        "gloo:all_reduce",
        "mpi:send",
        "ccl::reduce",
    ],
)
def test_communication_of_every_library_is_known(name: str) -> None:
    assert is_communication(name)
    assert is_communication(name.upper())


@pytest.mark.parametrize("name", ["compile", "reduce_kernel", "aten::empty", "igloo", "node::run", "simpi:x"])
def test_words_that_only_look_like_communication(name: str) -> None:
    assert not is_communication(name)


def test_what_is_asked_of_names_is_asked_once_and_only_where_it_occurs() -> None:
    rows = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 1}
        for at, (cat, name) in enumerate([("cpu_op", "a"), ("kernel", "b"), ("kernel", "a"), ("kernel", "c")] * 3)
    ]

    events = read_bytes(json.dumps({"traceEvents": rows}).encode(), "t.json").events
    asked: list[str] = []

    def hit(name: str) -> bool:
        asked.append(name)
        return name == "a"

    for _ in range(2):
        assert [events.names[i] for i in np.flatnonzero(events.names_where(hit, Category.CPU_OP))] == ["a"]
    assert asked == ["a"]
    assert events.rows_with(events.names_where(hit)).sum() == 6
    assert (events.named("A") == events.exactly("a")).all()
