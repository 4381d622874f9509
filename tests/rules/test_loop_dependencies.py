"""Which turns of a loop wait for the turn before, and what that leaves to promise."""

import json
from typing import Any

import pytest

from advisor.analyses.lines.lines import LinesTrace
from advisor.capture.record import JudgedOps, RankRecord
from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.trace.read.load import read_bytes

ITERATIONS, OP_US, GAP_US = 20, 6.0, 1.0
# (line, op, places of the turn's ops that it waits for: of this turn, or with a minus of the turn before)
Op = tuple[int, str, tuple[str, ...]]


def row(name: str, start: float, dur: float, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}


def rows_of(turn: list[Op], turns: int, nodes: str = "") -> list[dict[str, Any]]:
    """Iterations in a row, each op under its line, then a product of 200 µs at line 90.

    nodes: of the backward pass that each turn runs at line 34: the same one, one of its own, or none.
    """
    rows, at = [], 0.0
    for turned in range(turns):
        for line, name, _ in turn:
            rows += [
                row(f"advisor:line|/home/me/train.py|{line}|forward", at, OP_US + GAP_US),
                row(f"aten::{name}", at, OP_US, "cpu_op"),
            ]
            at += OP_US + GAP_US
        if nodes:
            number = 7 if nodes == "same" else 7 + turned
            args = {"Sequence number": number, "Fwd thread id": 1}
            node = row("autograd::engine::evaluate_function: TanhBackward0", at, OP_US, "cpu_op")
            rows += [row("advisor:line|/home/me/train.py|34|forward", at, OP_US + GAP_US), node | {"args": args}]
            at += OP_US + GAP_US
    product = row("aten::mm", at, 200, "cpu_op")
    return [*rows, row("advisor:line|/home/me/train.py|90|main", at, 200), product]


def waiting(turn: list[Op], turns: int) -> JudgedOps:
    """What the observer would have seen: each op by its letter, of this turn, or of the last with a minus before it."""
    letters = {chr(ord("a") + at): at for at in range(len(turn))}
    waits, names = [], []
    for number in range(turns):
        for at, (_, name, needs) in enumerate(turn):
            backs = {at - letters[one[-1]] + len(turn) * one.startswith("-") for one in needs}
            waits.append(sorted(back for back in backs if back <= number * len(turn) + at))
            names.append(f"aten::{name}")
    known = list(dict.fromkeys(names))
    return JudgedOps(names=known, ops=[known.index(name) for name in names], waits=waits)


def finding(turn: list[Op], seen: JudgedOps | None, turns: int = ITERATIONS, nodes: str = "") -> Any:
    """What the rule says of three profiled steps and one whose lines were recorded; None where nothing."""
    rows = rows_of(turn, turns, nodes)
    length = max(one["ts"] + one["dur"] for one in rows) + 1

    def trace(numbers, wanted):
        steps = [row(f"ProfilerStep#{at}", at * length, length - 0.5) for at in numbers]
        steps += [{**one, "ts": one["ts"] + at * length} for at in numbers for one in rows if wanted(one)]
        return read_bytes(json.dumps({"traceEvents": steps}).encode(), "made")

    known = Computed(
        trace=trace((0, 1, 2), lambda one: one["cat"] == "cpu_op"),
        record=RankRecord(reused=seen),
        lines=LinesTrace(trace((3,), lambda one: True)),
    )
    found = apply(load_rules().by_id()["tensor-loop"], known, {}).findings
    return found[0] if found else None


ALONE: list[Op] = [(31, "select", ()), (32, "sigmoid", ("a",)), (33, "mul", ("b",))]
# A state goes from turn to turn through a product and a tanh.
RECURRENT: list[Op] = [(31, "mm", ("-b",)), (32, "tanh", ("a",))]
# Three ops look at the input alone, and one at the state.
FED: list[Op] = [(31, "sin", ()), (32, "cos", ("a",)), (33, "mul", ("b",)), (34, "tanh", ("c", "-d"))]
# The state feeds three ops that no later turn looks at.
READ_OUT: list[Op] = [(31, "tanh", ("-a",)), (32, "sin", ("a",)), (33, "cos", ("b",)), (34, "mul", ("c",))]
SUMMED: list[Op] = [(31, "sigmoid", ()), (32, "sum", ("a",)), (33, "add", ("b", "-c"))]
CELLS: list[Op] = [(31, "select", ()), (32, "lstm_cell", ("a", "-b"))]
# nn.LSTM, called for one time step each: of a sequence that is there, or of what it made itself.
SEQUENCE: list[Op] = [(31, "slice", ()), (32, "lstm", ("a", "-b"))]
GENERATED: list[Op] = [(31, "slice", ("-b",)), (32, "lstm", ("a", "-b"))]


def share(turn: list[Op], found: Any) -> float:
    """The high end as a share of what the loop takes, without what rules add for the caches."""
    return found.saving.high_us / 1.1 / (ITERATIONS * len(turn) * (OP_US + GAP_US))


@pytest.mark.parametrize("turn", [ALONE, SUMMED, CELLS, SEQUENCE], ids=["alone", "summed", "cells", "sequence"])
def test_turns_that_one_op_can_do_promise_something_for_certain(turn):
    found = finding(turn, waiting(turn, ITERATIONS))
    # All turns in the time of one, of each of its ops.
    assert share(turn, found) == pytest.approx(1 - 1 / ITERATIONS, rel=0.02)
    assert found.saving.low_us > 0


def test_cells_that_take_parts_of_a_sequence_are_a_layer_for_certain():
    fed: list[Op] = [(31, "select", ()), (32, "gru_cell", ("a", "-b"))]
    found = finding(fed, waiting(fed, ITERATIONS))
    # A short call of a GRU's cell: 55 to 87 % of the cells' half of the loop stay.
    assert found.fix.title == "Call `nn.GRU` once for the whole sequence"
    assert share(fed, found) == pytest.approx(1 - 0.55 / 2 - 0.5 / ITERATIONS, rel=0.02)
    assert found.saving.low_us > 0
    assert "a layer over all time steps took at most" in found.saving.how
    made: list[Op] = [(31, "select", ("-b",)), (32, "gru_cell", ("a", "-b"))]
    assert finding(made, waiting(made, ITERATIONS)) is None


@pytest.mark.parametrize(
    "turn",
    [
        [(31, "_to_copy", ()), (32, "gru_cell", ("a", "-b"))],  # generates, with weights that autocast converts
        [(31, "select", ()), (32, "gru_cell", ("a", "-c")), (33, "masked_fill", ("b",))],  # the state is reset
    ],
    ids=["weights of each turn", "a state that is changed"],
)
def test_what_a_layer_may_not_do_is_promised_as_a_bound_at_most(turn):
    found = finding(turn, waiting(turn, ITERATIONS))
    assert found.saving.low_us == 0
    assert "in another way than a layer" in found.saving.how
    assert "nn.GRU" not in found.fix.title


def test_what_puts_the_results_of_turns_together_goes_with_them():
    turn: list[Op] = [(31, "select", ()), (32, "sigmoid", ("a",)), (33, "stack", ("b",))]
    seen = waiting(turn, ITERATIONS)
    # One for all turns, as a list that is stacked behind the loop, and others that wait for the one before.
    waits = [[1, 3] if at % 3 == 2 and at > 2 else one for at, one in enumerate(seen.waits)]
    found = finding(turn, JudgedOps(names=seen.names, ops=seen.ops, waits=waits))
    assert share(turn, found) == pytest.approx(1 - 1 / ITERATIONS, rel=0.02)


def test_one_op_behind_a_loop_of_cells_is_no_recurrence():
    seen = waiting(CELLS, ITERATIONS)
    after: list[Op] = [*CELLS, (33, "mean", ())]
    # In the first turn only: what runs once a step, on a line that the loop's turns are next to.
    ops = [*seen.ops[:2], len(seen.names), *seen.ops[2:]]
    waits = [
        *seen.waits[:2],
        [1],
        *([one + (at < 4 and one > 1) for one in back] for at, back in enumerate(seen.waits[2:], 2)),
    ]
    found = finding(after, JudgedOps(names=[*seen.names, "aten::mean"], ops=ops, waits=waits))
    assert found is not None
    assert found.saving.low_us > 0


@pytest.mark.parametrize(("before", "certain"), [("select", True), ("sigmoid", False), ("lift_fresh", False)])
def test_numbers_that_were_there_before_the_loop_are_no_reason_to_wait(before, certain):
    """A turn reads a number of a tensor, or of what it made; Python makes a tensor that the turn computes with."""
    turn: list[Op] = [(31, before, ()), (32, "item", ("a",)), (33, "lift_fresh", ()), (34, "mul", ("c",))]
    found = finding(turn, waiting(turn, ITERATIONS))
    assert (found.saving.low_us > 0) == certain
    assert ("go through Python" in found.saving.how) != certain


@pytest.mark.parametrize("turn", [RECURRENT, GENERATED], ids=["recurrent", "generated"])
def test_a_recurrence_that_no_op_does_is_no_finding(turn):
    assert finding(turn, waiting(turn, ITERATIONS)) is None


@pytest.mark.parametrize("turn", [FED, READ_OUT], ids=["before the state", "behind the state"])
def test_what_needs_no_turn_before_or_no_turn_behind_can_leave_a_recurrence(turn):
    found = finding(turn, waiting(turn, ITERATIONS))
    assert share(turn, found) == pytest.approx(0.75 * (1 - 1 / ITERATIONS), rel=0.02)
    # A quarter waits for the state, and of the rest one turn's time remains.
    assert "29 % of the loop depends" in found.saving.how


def test_a_loop_in_a_loop_of_which_only_the_outer_one_is_a_recurrence():
    # Four times five turns: each five need the last of the five before.
    inner: list[Op] = [(31, "exp", ()), (32, "log", ("a",))]
    seen = waiting(inner, ITERATIONS)
    waits = [
        ([1] if at % 2 else [] if at < 10 else [(at % 10) + 1]) for at in range(2 * ITERATIONS)
    ]  # the first of each turn needs the last op of the five turns before
    found = finding(inner, JudgedOps(names=seen.names, ops=seen.ops, waits=waits))
    assert share(inner, found) == pytest.approx(1 - 4 / ITERATIONS, rel=0.02)


def test_steps_of_other_lengths_than_the_observed_one_are_told_by_what_surrounds_an_op():
    found = finding(RECURRENT, waiting(RECURRENT, ITERATIONS - 3))
    assert found is None


def test_an_observed_step_of_another_kind_leaves_it_open():
    """One that calls the same lines a few times: the loop may be that of every tenth step."""
    found = finding(RECURRENT, waiting(RECURRENT, ITERATIONS // 4))
    assert found.saving.low_us == 0
    assert "was not recorded" in found.saving.how


def test_what_is_computed_again_beside_a_recurrence_is_another_rules():
    seen = waiting(FED, ITERATIONS)
    again = [(at, at % len(FED)) for at in range(len(FED), len(seen.ops)) if at % len(FED) < 3]
    assert finding(FED, JudgedOps(names=seen.names, ops=seen.ops, waits=seen.waits, again=again)) is None


def test_one_op_over_all_turns_computes_nothing_again():
    seen = waiting(ALONE, ITERATIONS)
    again = [(at, at % len(ALONE)) for at in range(len(ALONE), len(seen.ops))]
    found = finding(ALONE, JudgedOps(names=seen.names, ops=seen.ops, waits=seen.waits, again=again))
    assert share(ALONE, found) == pytest.approx(1 - 1 / ITERATIONS, rel=0.02)


def test_tensors_that_cannot_be_told_apart_leave_it_open():
    seen = waiting(RECURRENT, ITERATIONS)
    found = finding(RECURRENT, JudgedOps(names=seen.names, ops=seen.ops, waits=[[], [0], *seen.waits[2:]]))
    assert found.saving.low_us == 0


@pytest.mark.parametrize(("nodes", "certain"), [("same", False), ("own", True)])
def test_backward_passes_through_one_forward_pass_promise_nothing_for_certain(nodes, certain):
    """As rows of a Jacobian; a sample that has a forward pass of its own becomes one of a batch."""
    found = finding(ALONE, waiting(ALONE, ITERATIONS), nodes=nodes)
    assert (found.saving.low_us > 0) == certain
    assert ("vmap" in found.saving.how) != certain


def test_where_nobody_saw_what_waits_nothing_is_certain():
    found = finding(ALONE, None)
    assert found.saving.low_us == 0
    assert "was not recorded" in found.saving.how
