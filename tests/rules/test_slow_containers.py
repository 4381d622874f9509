"""Which operations on containers are named at lines whose cost is known."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.api import Source
from advisor.capture.record import CodePlace, Container

containers: Any = import_module("advisor.rules.shared._slow_containers")


def container(**changes: Any) -> Container:
    known = {"file": "train.py", "line": 31, "function": "sample", "name": "self.memory", "kind": "deque"}
    known |= {"length": 400_000, "operation": "draw", "often": 256.0, "made": CodePlace("train.py", 12)}
    return Container(**(known | changes))


def line(us: float, number: int = 31, visits: float = 1.0) -> Any:
    return SimpleNamespace(source=Source("train.py", number, "sample"), us=us, visits=visits)


def slow(one: Container, *lines: Any) -> Any:
    return containers.slow_container(SimpleNamespace(containers=[one]), lines, sum(one.us for one in lines))


def test_the_saving_lies_between_the_operation_and_its_line() -> None:
    found = slow(container(read_us=10.0), line(4000.0), line(1000.0, 33))
    assert found.us == (2560.0, 4000.0)
    assert [place.line for place in (found.line, *found.made)] == [31, 12]


def test_without_a_measurement_its_length_tells() -> None:
    low_us, high_us = slow(container(), line(4000.0)).us
    assert low_us == pytest.approx(256 * 400_000 * 0.011 / 1e3)
    assert high_us == 4000.0


@pytest.mark.parametrize(
    "one",
    [
        container(length=1000),
        container(often=1.0),
        container(kind="list", operation="search", length=20, often=1.0),
        container(kind="list", operation="front", length=500, often=1.0),
        container(kind="ndarray", operation="grow", bytes=4000, often=1.0),
        container(often=None, length=5000),
        container(kind="DataFrame", operation="filter", length=50_000, often=1.0),
        container(kind="ndarray", operation="weights", length=2_000, often=1.0),
        container(line=40),
    ],
)
def test_short_containers_and_other_lines_are_not_named(one: Container) -> None:
    assert slow(one, line(4000.0)) is None


@pytest.mark.parametrize(
    ("one", "visits"),
    [
        (container(kind="list", operation="search", length=3000, often=1.0), 256.0),
        (container(kind="list", operation="front", length=100_000, often=1.0), 128.0),
        (container(kind="ndarray", operation="grow", bytes=40_000_000, often=1.0), 1.0),
        (container(kind="DataFrame", operation="row", length=10, often=1.0), 64.0),
        (container(kind="DataFrame", operation="rows", length=64, often=64.0), 65.0),
        (container(kind="DataFrame", operation="filter", length=50_000, often=1.0), 8.0),
        (container(kind="ndarray", operation="weights", length=20_000, often=1.0), 16.0),
        (container(often=None), 1.0),
    ],
)
def test_long_ones_are(one: Container, visits: float) -> None:
    found = slow(one, line(4000.0, visits=visits))
    assert found is not None
    assert found.us[0] <= found.us[1] == 4000.0
    assert "train.py:31" in found.said


def test_a_record_without_containers() -> None:
    assert containers.slow_container(None, [line(1000.0)], 1000.0) is None


def test_two_lines_that_search_one_list_count_together() -> None:
    """`if token in self.words: ids.append(self.words.index(token))`, each of them less than a third of all lines."""
    known = {"kind": "list", "operation": "search", "length": 3000, "often": 1.0, "name": "self.words", "made": None}
    both = [container(line=48, **known), container(line=49, **known)]
    lines = [line(1000.0, 48, 256.0), line(1100.0, 49, 256.0), line(1900.0, 66)]
    found = containers.slow_container(SimpleNamespace(containers=both), lines, 4000.0)
    assert [place.line for place in (found.line, *found.others)] == [49, 48]
    assert found.us[1] == pytest.approx(2100.0)
    assert "train.py:49 searches" in found.said
    assert "and so does train.py:48" in found.said
    one = containers.slow_container(SimpleNamespace(containers=both[:1]), lines, 4000.0)
    assert one is None  # a quarter of what the lines take is not what to change
    other = [both[0], container(line=49, **known | {"name": "self.tags"})]
    assert containers.slow_container(SimpleNamespace(containers=other), lines, 4000.0) is None


def test_rows_of_an_array_that_is_stored_by_columns() -> None:
    """As capture measured a row on this array; where that is little of the line, it is something else there."""
    known = {"kind": "ndarray", "operation": "by_row", "name": "self.features", "made": None, "often": 500.0}
    found = slow(container(read_us=3.0, **known), line(4000.0))
    assert found.us == (1500.0, 4000.0)
    assert "stored by columns" in found.said
    assert "ascontiguousarray" in found.fix.after
    assert slow(container(read_us=0.1, **known), line(4000.0)) is None
