"""Steps that turn more or less often in a loop than the one whose lines were recorded."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.lines.lines import LinesTrace
from advisor.analyses.matching.align_ops import SameTurns
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes

TURN, OP_US, GAP_US = ["select", "sigmoid", "mul"], 6.0, 2.0


def step(turns: int) -> list[str]:
    return ["linear", *TURN * turns, "mul", "sum", "backward"]


@pytest.mark.parametrize("turns", [9, 14, 3])
def test_each_op_of_a_turn_is_one_of_a_turn(turns):
    found = SameTurns(step(9)).of(step(turns))
    assert [step(9)[at] for at in found] == step(turns)
    loop = range(1, 1 + 9 * len(TURN))
    assert all((at in loop) == (1 <= op <= turns * len(TURN)) for op, at in enumerate(found.tolist()))


def test_what_the_other_step_does_not_have_is_no_op_of_it():
    names = [*step(4)[:5], "print", *step(4)[5:]]
    assert SameTurns(step(4)).of(names).tolist() == [*range(5), -1, *range(5, len(step(4)))]
    assert SameTurns(names).of(step(4)).tolist() == [*range(5), *range(6, len(names))]


@given(st.lists(st.sampled_from("abcd"), max_size=25), st.lists(st.sampled_from("abcd"), max_size=25))
@settings(max_examples=40)
def test_an_op_is_one_of_its_name_or_none(known, names):
    found = SameTurns(known).of(names)
    assert len(found) == len(names)
    assert all(at < 0 or known[at] == name for at, name in zip(found.tolist(), names, strict=True))


def row(name: str, start: float, dur: float, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}


def rows_of(turns: int) -> list[dict[str, Any]]:
    """Lines 31 to 33 are those of the loop, line 30 is before it and those from 40 on are behind it."""
    lines = [30, *[31, 32, 33] * turns, 40, 41, 42]
    rows, at = [], 0.0
    for line, name in zip(lines, step(turns), strict=True):
        rows += [row(f"advisor:line|train.py|{line}|main", at, OP_US + GAP_US)]
        rows += [row(f"aten::{name}", at + GAP_US, OP_US, "cpu_op")]
        at += OP_US + GAP_US
    return rows


@pytest.mark.parametrize("turns", [6, 11, 3])
def test_turns_beyond_those_recorded_are_on_the_lines_of_the_loop(turns):
    """Each op and the gap in front of it are on its line, whatever step was recorded."""
    rows, recorded, length = rows_of(turns), rows_of(6), 2000.0

    def trace(numbers, of, cats):
        made = [row(f"ProfilerStep#{at}", at * length, length - 1) for at in numbers]
        made += [{**one, "ts": one["ts"] + at * length + 5} for at in numbers for one in of if one["cat"] in cats]
        return read_bytes(json.dumps({"traceEvents": made}).encode(), "made")

    known = Computed(
        trace=trace((0, 1), rows, ("cpu_op",)),
        lines=LinesTrace(trace((2,), recorded, ("cpu_op", "user_annotation"))),
    )
    costs = {cost.source.line: cost for cost in known.get(LineCosts).lines}
    for line in (31, 32, 33):
        assert costs[line].rows == turns
        assert costs[line].visits == turns
        assert costs[line].us == pytest.approx(turns * (OP_US + GAP_US), abs=2 * GAP_US)
    for line in (40, 41):
        assert (costs[line].rows, costs[line].visits) == (1, 1)
        assert costs[line].us == pytest.approx(OP_US + GAP_US, abs=2 * GAP_US)
    assert np.isfinite([cost.us for cost in costs.values()]).all()
