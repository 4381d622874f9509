"""Which rule has a loop: places of Python and of ops that call each other in each turn are one."""

import json
from typing import Any

import pytest

from advisor.analyses.lines.lines import LinesTrace
from advisor.capture.record import JudgedOps, RankRecord
from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.trace.events import Trace
from advisor.trace.read.load import read_bytes

ITERATIONS, PYTHON_US, OP_US, GAP_US = 20, 40.0, 6.0, 1.0


def row(name: str, start: float, dur: float, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}


def line(number: int, start: float, dur: float, function: str) -> dict[str, Any]:
    return row(f"advisor:line|/home/me/train.py|{number}|{function}", start, dur)


def step(turn: list[dict[str, Any]], turn_us: float, turns: int) -> list[dict[str, Any]]:
    """So many turns in a row, then one product of 200 µs at line 90."""
    rows = [{**one, "ts": one["ts"] + k * turn_us} for k in range(turns) for one in turn]
    end = turns * turn_us
    return [*rows, line(90, end, 200, "main"), row("aten::mm", end, 200, "cpu_op")]


def computed(rows: list[dict[str, Any]]) -> Computed:
    """Three profiled steps of these rows, and one whose lines were recorded."""
    length = max(one["ts"] + one["dur"] for one in rows) + 1

    def trace(numbers, wanted):
        steps = [row(f"ProfilerStep#{at}", at * length, length - 0.5) for at in numbers]
        steps += [{**one, "ts": one["ts"] + at * length} for at in numbers for one in rows if wanted(one)]
        return read_bytes(json.dumps({"traceEvents": steps}).encode(), "made")

    return Computed(
        trace=trace((0, 1, 2), lambda one: one["cat"] == "cpu_op"), lines=LinesTrace(trace((3,), lambda one: True))
    )


def said(known: Computed) -> dict[str, list[int]]:
    """rule -> the lines of its first finding, of the two rules that have loops."""
    rules = load_rules().by_id()
    found = {name: apply(rules[name], known, {}).findings for name in ("tensor-loop", "host-work")}
    return {name: sorted(place.line for place in one[0].where) for name, one in found.items() if one}


def python_then_ops(ops: int, called: bool) -> Computed:
    """A turn: Python in line 30, and so many ops in line 60, of a function that line 30 calls, or of another loop."""
    turn_us = PYTHON_US + ops * (OP_US + GAP_US)
    around = line(30, 0, turn_us if called else PYTHON_US, "prepare")
    inner = line(60, PYTHON_US, ops * (OP_US + GAP_US), "forward")
    calls = [row(f"aten::op{k}", PYTHON_US + k * (OP_US + GAP_US), OP_US, "cpu_op") for k in range(ops)]
    return computed(step([around, inner, *calls], turn_us, ITERATIONS))


@pytest.mark.parametrize(("ops", "owner"), [(12, "tensor-loop"), (2, "host-work")])
def test_python_that_calls_ops_in_each_turn_is_one_loop_with_them_of_the_kind_that_has_its_time(ops, owner):
    # 40 µs of Python beside 84 of ops and what calling them takes, or beside 14.
    assert said(python_then_ops(ops, called=True)) == {owner: [30, 60]}


def test_two_loops_of_which_none_calls_the_other_are_two():
    assert said(python_then_ops(12, called=False)) == {"tensor-loop": [60], "host-work": [30]}


@pytest.mark.parametrize("each", [False, True])
def test_a_backward_pass_in_the_head_of_a_loop_is_no_part_of_its_turns(each):
    """`for parameter, grad in zip(parameters, grad(loss, parameters))`: one pass for all turns, or one in each."""
    node = row("autograd::engine::evaluate_function: MulBackward0", 0, 100, "cpu_op")
    node["args"] = {"Sequence number": 7, "Fwd thread id": 1}
    turn = [line(30, 0, 1, "step"), line(31, 1, OP_US + GAP_US, "step"), row("aten::mul", 1, OP_US, "cpu_op")]
    turn_us = 1 + OP_US + GAP_US
    if each:
        turn = [line(30, 0, 100, "step"), node, *({**one, "ts": one["ts"] + 100} for one in turn)]
        rows = step(turn, 100 + turn_us, ITERATIONS)
    else:
        rows = [
            line(30, 0, 100, "step"),
            node,
            *({**one, "ts": one["ts"] + 100} for one in step(turn, turn_us, ITERATIONS)),
        ]
    [finding] = apply(load_rules().by_id()["tensor-loop"], computed(rows), {}).findings
    expected = ITERATIONS * (turn_us + 100 * each)
    assert finding.facts["loop_us"] == pytest.approx(expected, abs=2 * OP_US)


@pytest.mark.parametrize(("often", "found"), [("aten::select", {"tensor-loop": [31]}), ("aten::linear", {})])
def test_a_turn_may_call_one_op_many_times_but_no_layers(often, found):
    """Five elements are looked up and one stretch is cut: a loop. Five layers and an activation: a network."""
    names = [often] * 5 + ["aten::narrow"]
    calls = [row(name, k * (OP_US + GAP_US), OP_US, "cpu_op") for k, name in enumerate(names)]
    turn_us = len(calls) * (OP_US + GAP_US)
    known = computed(step([line(31, 0, turn_us, "cut"), *calls], turn_us, ITERATIONS))
    assert said(known) == found
    if found:
        [finding] = apply(load_rules().by_id()["tensor-loop"], known, {}).findings
        assert f"`narrow` {ITERATIONS} times a step" in finding.message


def read_by_one_visit(name: str, steps_with: str) -> Computed:
    """Line 31, visited once: one op sixty times, in those of the profiled steps that are marked x."""
    ops = [row(name, k * 8.0, 6.0, "cpu_op") for k in range(60)]
    rows = step([line(31, 0, 480, "main"), *ops], 480, 1)
    profiled = []
    for at, mark in enumerate(steps_with):
        kept = [one for one in rows if one["cat"] == "cpu_op" and (mark == "x" or one["name"] == "aten::mm")]
        profiled += [
            row(f"ProfilerStep#{at}", at * 700.0, 690),
            *({**one, "ts": one["ts"] + at * 700.0} for one in kept),
        ]
    recorded = [row("ProfilerStep#9", 0, 690), *rows]
    traces = [read_bytes(json.dumps({"traceEvents": made}).encode(), "made") for made in (profiled, recorded)]
    return Computed(trace=traces[0], lines=LinesTrace(traces[1]))


@pytest.mark.parametrize(
    ("name", "steps_with", "found"),
    [
        ("aten::item", "xxx", True),  # as a tensor that is formatted for a log
        ("aten::is_nonzero", "xxx", True),
        ("aten::mul", "xxx", False),  # as weights that a library updates one by one
        ("aten::item", "x..", False),  # in one step: another step was longer, nobody knows by which line
    ],
)
def test_a_librarys_loop_is_the_users_where_it_reads_numbers_in_each_step(name, steps_with, found):
    assert said(read_by_one_visit(name, steps_with)).get("tensor-loop") == ([31] if found else None)


@pytest.mark.parametrize(
    ("first", "second", "last", "certain"),
    [
        ("aten::gt", "aten::nonzero", "aten::mean", False),
        ("aten::eq", "aten::nonzero", "aten::mean", True),  # each element belongs to one turn
        ("aten::eq", "aten::nonzero", "aten::linear", False),  # an expert's weights
        ("aten::gt", "aten::neg", "aten::mean", True),
    ],
)
def test_a_loop_that_picks_its_elements_by_a_mask_promises_nothing_for_certain(first, second, last, certain):
    names = [first, second, "aten::index", last]
    calls = [row(name, 8 * at, 6, "cpu_op") for at, name in enumerate(names)]
    known = computed(step([line(31, 0, 32, "forward"), *calls], 32, ITERATIONS))
    seen = JudgedOps(
        names=[*names, "aten::mm"], ops=[0, 1, 2, 3] * ITERATIONS + [4], waits=[[], [1], [1], [1]] * ITERATIONS + [[]]
    )
    known = Computed(trace=known.get(Trace), lines=known.get(LinesTrace), record=RankRecord(reused=seen))
    (finding,) = apply(load_rules().by_id()["tensor-loop"], known, {}).findings
    assert (finding.saving.low_us > 0) == certain
    assert ("mask" in finding.saving.how) != certain


@pytest.mark.parametrize(("picked", "said"), [(12, "1.3 times the work"), (24, ""), (None, "mask")])
def test_what_a_mask_leaves_out_is_work_for_ops_over_all_elements(picked, said):
    """Of 24 elements of a turn so many are picked, or shapes are not recorded; one op of three works on them."""
    names = ("aten::gt", "aten::nonzero", "aten::clamp", "aten::exp")
    shapes = [[[24]], [[24]], [[24]], [[picked]]] if picked else [[], [], [], []]
    calls = [
        {**row(name, 12 * at, 10, "cpu_op"), "args": {"Input Dims": dims} if picked else {}}
        for at, (name, dims) in enumerate(
            zip(("aten::gt", "aten::nonzero", "aten::clamp", "aten::exp"), shapes, strict=True)
        )
    ]
    known = computed(step([line(31, 0, 48, "forward"), *calls], 48, ITERATIONS))
    seen = JudgedOps(
        names=[*names, "aten::mm"],
        ops=[0, 1, 2, 3] * ITERATIONS + [4],
        waits=[[], [1], [1], [1]] * ITERATIONS + [[]],
    )
    known = Computed(trace=known.get(Trace), lines=known.get(LinesTrace), record=RankRecord(reused=seen))
    (finding,) = apply(load_rules().by_id()["tensor-loop"], known, {}).findings
    assert said in finding.saving.how
    assert (finding.saving.low_us > 0) == (picked is not None)
