"""Which package lines call, and the line that takes a row out of a table before those that read it."""

from __future__ import annotations

import json
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.lines.library_calls import packages
from advisor.analyses.lines.lines import LinesTrace
from advisor.capture.record import Container
from advisor.model import Source
from advisor.trace.read.load import read_bytes

loader: Any = import_module("advisor.rules.input._loader")


def recorded(*ranges: tuple[str, float, float]) -> LinesTrace:
    """A lines trace of these ranges: name, start and duration in µs."""
    rows = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}
        for name, start, dur in ranges
    ]
    return LinesTrace(read_bytes(json.dumps({"traceEvents": rows}).encode(), "made"))


def test_a_line_belongs_to_the_package_that_takes_half_of_it() -> None:
    found = packages(
        recorded(
            ("advisor:line|train.py|40|__getitem__", 0, 100),
            ("advisor:call|pandas.core.series.Series.__getitem__", 1, 90),
            ("advisor:line|train.py|41|__getitem__", 100, 100),
            ("advisor:call|pandas.core.series.Series.__getitem__", 101, 10),
            ("advisor:call|PIL.Image.open", 111, 80),
            ("advisor:line|train.py|42|__getitem__", 200, 100),
            ("advisor:call|pandas.core.series.Series.__getitem__", 201, 20),
        )
    )
    assert found == {("train.py", 40): "pandas", ("train.py", 41): "PIL"}
    assert packages(None) == {}


@pytest.mark.parametrize(
    ("package", "line", "function", "first"),
    [
        ("pandas", 42, "__getitem__", [41]),
        ("PIL", 42, "__getitem__", []),  # a picture that the row names
        ("pandas", 40, "__getitem__", []),  # before the row is there
        ("pandas", 42, "collate", []),  # in another function
    ],
)
def test_the_row_comes_before_what_is_read_of_it(package: str, line: int, function: str, first: list[int]) -> None:
    costly = Source("train.py", line, function)
    row = Container("train.py", 41, "__getitem__", "self.table", "DataFrame", length=9000, operation="row")
    line: Any = SimpleNamespace(source=costly, package=package)
    costs = LineCosts((line,), np.empty(0, np.int64))
    found = loader.rows_before([costly], costs, SimpleNamespace(containers=[row]))
    assert [one.line for one in found] == first
    assert loader.rows_before([costly], None, None) == ()
