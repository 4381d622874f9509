"""What lines take of the step without the profiler, against drawings worked out by hand."""

import json

import pytest

from advisor.analyses.costs.line_shares import LineShares
from advisor.api import Ev, draw
from advisor.computed import Computed, Missing
from advisor.engine.rule import Example
from advisor.testing import computed
from advisor.trace.read.load import read_bytes


def step(at, nodes):
    """1,000 µs: 100 in layer a, 300 in layer b, 600 in a function that calls backward(), with a node of each layer."""

    def row(name, start, dur, kind="cpu_op", **args):
        return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": at + start, "dur": dur, "args": args}

    number = 10 * at
    yield row(f"ProfilerStep#{at // 1000}", 0, 1000, "user_annotation")
    for line, name, start, dur in (10, "a", 0, 100), (20, "b", 100, 300), (30, "train", 400, 600):
        yield row(f"train.py({line}): {name}", start, dur, "python_function", **{"Python id": line})
    yield row("aten::mm", 0, 100, **{"Sequence number": number + 1})
    yield row("aten::mm", 100, 300, **{"Sequence number": number + 2})
    start = 400
    for of, dur in nodes:
        node = "autograd::engine::evaluate_function: MmBackward0"
        yield row(node, start, dur, **{"Sequence number": number + of, "Fwd thread id": 1})
        start += dur


def known(*nodes):
    rows = [row for at in (0, 1000) for row in step(at, nodes)]
    found = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")).get(LineShares).lines
    return {line.where.function: line for line in found}


def test_the_backward_pass_counts_for_the_layers_whose_operators_caused_it():
    lines = known((2, 200), (1, 400))
    assert lines["a"].low == pytest.approx(0.5, abs=0.01)
    assert lines["b"].low == pytest.approx(0.5, abs=0.01)
    assert (lines["a"].backward, lines["b"].backward) == (pytest.approx(0.8, abs=0.02), pytest.approx(0.4, abs=0.02))
    assert "train" not in lines  # what it waited for is theirs
    assert sum(line.high for line in lines.values()) == pytest.approx(1, abs=0.01)


def test_what_follows_the_backward_pass_in_its_function_is_that_functions_own():
    lines = known((2, 200), (1, 200))
    assert lines["train"].low == pytest.approx(0.2, abs=0.01)
    assert lines["train"].backward == 0


def test_operators_and_runs_are_counted_per_step():
    lines = known((2, 200), (1, 400))
    assert (lines["a"].runs, lines["a"].ops) == (1, 2)


def test_lines_of_less_than_a_hundredth_of_the_step_are_left_out():
    drawing = draw(
        "step [1         ][2         ]\ncpu  [F       ][P][F       ][P]",
        us=100,
        F=Ev("train.py(3): f"),
        P=Ev("train.py(4): g", fill=0.02),
    )
    lines = computed(Example("drawn", drawing, None)).get(LineShares).lines
    assert [line.where.line for line in lines] == [3]


def test_without_lines_it_is_said_how_to_get_them():
    drawing = draw("step [1    ][2    ]\ncpu  [F ][B][F ][B]", us=100)
    with pytest.raises(Missing, match="advisor run"):
        computed(Example("drawn", drawing, None)).get(LineShares)
