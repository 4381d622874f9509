"""Which line asked for a batch: the one that ran as the fetch began, not those of the data set that the fetch calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.api import InputWaits, LinesTrace
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def row(name: str, start: float, dur: float, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}


def line(number: int, start: float, dur: float, function: str = "main") -> dict[str, Any]:
    return row(f"advisor:line|/home/me/train.py|{number}|{function}", start, dur, "user_annotation")


def one_step(number: int, start: float) -> list[dict[str, Any]]:
    """100 µs, half of them in two fetches: one of 40 µs, one of 10 µs."""
    return [
        row(f"ProfilerStep#{number}", start, 100, "user_annotation"),
        row(FETCH, start + 1, 40, "user_annotation"),
        row("aten::stack", start + 31, 5),
        row(FETCH, start + 45, 10, "user_annotation"),
        row("aten::mm", start + 60, 20),
    ]


PROFILED = [*one_step(5, 1000), *one_step(6, 1100)]
# Line 50 asks for the long one, whose samples line 20 makes; line 51 for the short one.
RECORDED = [
    *one_step(7, 5000),
    line(50, 5000.5, 43.5),
    line(20, 5005, 25, "__getitem__"),
    line(51, 5044, 12),
    line(52, 5058, 30),
]


def waits(recorded: list[dict[str, Any]] | None) -> InputWaits:
    made = [rows and read_bytes(json.dumps({"traceEvents": rows}).encode(), "made") for rows in (PROFILED, recorded)]
    return Computed(trace=made[0], lines=LinesTrace(made[1]) if made[1] else None).get(InputWaits)


def test_the_line_that_asks_for_the_longest_fetch_is_named() -> None:
    found = waits(RECORDED)
    assert found.where is not None
    assert (found.where.line, found.where.function) == (50, "main")
    assert found.us == pytest.approx(50.0)


def test_all_lines_that_ask_are_known() -> None:
    assert [at.line for at in waits(RECORDED).asked_at] == [50, 51]


def test_without_lines_nobody_is_named() -> None:
    found = waits(None)
    assert found.where is None
    assert found.asked_at == ()
