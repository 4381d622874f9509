"""Who called a recorded line, how often it began, and what lies between two lines of one call."""

import json
from typing import Any

import pytest

from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.lines.lines import LinesTrace
from advisor.api import Lines
from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.trace.events import Trace
from advisor.trace.read.load import read_bytes

FILE = "/home/me/train.py"


def row(name: str, start: float, dur: float, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}


def line(number: int, start: float, dur: float, function: str) -> dict[str, Any]:
    return row(f"advisor:line|{FILE}|{number}|{function}", start, dur)


def trace(rows: list[dict[str, Any]]) -> Trace:
    return read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")


def features(start: float, times: float) -> list[dict[str, Any]]:
    """One call of a function of two lines, 2 µs apart."""
    return [line(20, start, 18 * times, "features"), line(21, start + 20 * times, 20 * times, "features")]


def computed(calls: int, times: float = 1.0) -> Computed:
    """A step of 10 + 50 µs for each call: line 10 calls a function again and again, line 11 runs two ops."""
    step = 10.0 + 50 * calls * times
    called = [one for k in range(calls) for one in features(5.0 + 50 * k * times, times)]
    ops = [row("aten::mm", step, 30, "cpu_op"), row("aten::relu", step + 30, 60, "cpu_op")]
    recorded = [row("ProfilerStep#3", 0, step + 100), line(10, 0, step, "main"), *called, line(11, step, 100, "main")]
    profiled = [
        {**one, "ts": one["ts"] + at * (step + 100)}
        for at in (0, 1)
        for one in [row(f"ProfilerStep#{at}", 0, step + 100), *ops]
    ]
    return Computed(trace=trace(profiled), lines=LinesTrace(trace([*recorded, *ops])))


def test_a_line_begins_once_however_often_what_it_calls_comes_back_to_it() -> None:
    visits = {cost.source.line: cost.visits for cost in computed(20).get(LineCosts).lines}
    assert visits == {10: 1, 11: 1, 20: 20, 21: 20}


def test_a_function_is_called_by_the_line_around_it() -> None:
    costs = {cost.source.line: cost for cost in computed(20).get(LineCosts).lines}
    assert costs[20].called_from == costs[21].called_from == (FILE, 10)
    assert costs[10].called_from is None
    assert costs[11].called_from is None


def test_what_lies_between_two_lines_of_one_call_is_no_time_of_the_caller() -> None:
    us = {cost.source.line: cost.us for cost in computed(20).get(LineCosts).lines}
    # 18 µs, and the 2 up to the next line of the function.
    assert us[20] == pytest.approx(20 * 20, rel=0.01)
    assert us[21] == pytest.approx(20 * 20, rel=0.01)
    # Between two calls the caller may have worked.
    assert us[10] == pytest.approx(10 + 20 * 10, rel=0.02)


def test_the_spans_still_fill_the_step() -> None:
    lines = computed(20).get(Lines)
    assert (lines.spans[1:, 0] >= lines.spans[:-1, 1]).all()
    assert int((lines.spans[:, 1] - lines.spans[:, 0]).sum()) == 2 * (10 + 20 * 50 + 100) * 1000


def test_a_function_that_a_line_calls_often_is_one_place_with_that_line() -> None:
    outcome = apply(load_rules().by_id()["host-work"], computed(20), {})
    (finding,) = outcome.findings
    assert {where.line for where in finding.where} == {10, 20, 21}
    # Python of both, not of one: all but line 11, whose ops take nine tenths of it.
    assert finding.facts["lines_us"] == pytest.approx(1010, rel=0.02)


def test_a_function_that_is_called_once_is_a_place_of_its_own() -> None:
    outcome = apply(load_rules().by_id()["host-work"], computed(1, 20.0), {})
    assert sorted(tuple(where.line for where in one.where) for one in outcome.findings) == [(10,), (20, 21)]
