"""Loops of ops within a step, told without call stacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.step.repeated_ops import RepeatedOps
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes


def row(name: str, category: str, ts: int, dur: int) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}}


def ops(names: list[str], ts: int) -> list[dict[str, Any]]:
    """An op every 3 µs; `where>nonzero` is one within another."""
    rows = []
    for at, name in enumerate(names):
        rows += [row(f"aten::{one}", "cpu_op", ts + 3 * at, 2 - deep) for deep, one in enumerate(name.split(">"))]
    return rows


def loops(*steps: list[str], update: str = "") -> tuple[list[tuple[tuple[str, ...], int]], int]:
    """Body and iterations of each loop, and the µs in them, of steps with ops of 2 µs, one every 3 µs."""
    rows, ts = [], 10
    for number, names in enumerate(steps):
        rows.append(row(f"ProfilerStep#{number}", "user_annotation", ts, 3 * len(names) + 5))
        rows += ops(names, ts + 1)
        if update:
            rows.append(row(update, "user_annotation", ts + 1, 3 * len(names)))
        ts += 3 * len(names) + 6
    trace = read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")
    found = Computed(trace=trace).get(RepeatedOps)
    spent = sum(int(end - start) for start, end in found.spans) // 1000
    return [(one.ops, one.iterations) for one in found.loops], spent


REST = ["copy_", "embedding", "view"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["sub", "pow", "sum"] * 40, [(("sub", "pow", "sum"), 40)], id="a loop"),
        pytest.param(["add"] * 33, [(("add",), 33)], id="one op"),
        pytest.param(["sub", "pow", "sum"] * 31, [], id="too few iterations"),
        pytest.param(["linear", "gelu"] * 126, [], id="layers, as many as the deepest model has"),
        pytest.param(
            ["where>nonzero", "linear", "index_add_"] * 8, [(("where", "linear", "index_add_"), 8)], id="experts"
        ),
        pytest.param(["where", "linear", "index_add_"] * 12, [], id="layers that choose between two tensors"),
        pytest.param(["index>nonzero", "linear", "add"] * 12, [], id="layers that pick rows by a mask"),
        pytest.param(["linear", "tanh"] * 200, [(("linear", "tanh"), 200)], id="a cell that runs through time"),
        pytest.param(
            ["neg"] * 40 + ["mul", "add"] * 100, [(("mul", "add"), 100), (("neg",), 40)], id="two, the longer first"
        ),
    ],
)
def test_a_sequence_that_follows_on_itself_is_a_loop(names: list[str], expected: list[Any]) -> None:
    told, spent = loops([*REST, *names, "mean"], [*REST, *names, "mean"])
    assert told == expected
    # From the first op of a loop to the end of the last, twice.
    assert spent == 2 * sum(3 * len(ops) * times - 1 for ops, times in expected)


def test_steps_are_no_iterations() -> None:
    assert loops(*[["sub", "pow"] for _ in range(40)]) == ([], 0)


def test_a_loop_over_parameters_is_the_optimizers() -> None:
    assert loops(["mul_", "add_"] * 50, update="Optimizer.step#SGD.step") == ([], 0)
    assert loops(["mul_", "add_"] * 50)[0] == [(("mul_", "add_"), 50)]
