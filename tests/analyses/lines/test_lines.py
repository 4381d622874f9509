"""Which line of the user's code ran: from recorded lines, Python frames and call stacks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from advisor.analyses.lines.frames import Owner, owner, parse
from advisor.analyses.lines.line_records import _longest_rise, parse_record
from advisor.api import Lines, LinesTrace, Source, Steps
from advisor.computed import Computed
from advisor.trace.events import Trace
from advisor.trace.read.load import read_bytes


def row(name: str, start: float, dur: float, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": args}


def step(number: int, start: float, dur: float) -> dict[str, Any]:
    return row(f"ProfilerStep#{number}", start, dur, "user_annotation")


def line(number: int, start: float, dur: float, function: str = "main") -> dict[str, Any]:
    return row(f"advisor:line|/home/me/train.py|{number}|{function}", start, dur, "user_annotation")


def frame(name: str, start: float, dur: float) -> dict[str, Any]:
    return row(name, start, dur, "python_function", **{"Python id": 1})


def trace(rows: list[dict[str, Any]]) -> Trace:
    return read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")


def lines_of(rows: list[dict[str, Any]], recorded: list[dict[str, Any]] | None = None) -> tuple[Lines, Trace]:
    profiled = trace(rows)
    extra = LinesTrace(trace(recorded)) if recorded is not None else None
    return Computed(trace=profiled, lines=extra).get(Lines), profiled


def row_of(made: Trace, name: str, which: int = 0) -> int:
    return [i for i in range(len(made.events)) if made.events.text(i) == name][which]


# Two profiled steps of 100 µs on one clock, and one step of lines, three times as slow, on another.
PROFILED = [
    step(5, 1000, 100),
    row("aten::mm", 1000, 10),
    row("aten::item", 1020, 10),
    row("aten::item", 1090, 5),
    step(6, 1100, 100),
    row("aten::mm", 1100, 10),
    row("aten::item", 1130, 10),
    row("aten::item", 1190, 5),
]
RECORDED = [
    step(7, 5000, 300),
    line(10, 5000, 45, "step"),
    row("aten::mm", 5005, 30),
    line(11, 5055, 40),
    row("aten::item", 5060, 30),
    line(20, 5100, 150, "log"),
    line(12, 5255, 40),
    row("aten::item", 5260, 30),
]


def test_ops_get_the_line_of_the_same_op_in_the_recorded_step() -> None:
    lines, made = lines_of(PROFILED, RECORDED)
    assert lines.available
    for which in (0, 1):  # in both profiled steps
        assert lines.where_op(row_of(made, "aten::mm", which)) == Source("/home/me/train.py", 10, "step", "call")
        first, second = row_of(made, "aten::item", 2 * which), row_of(made, "aten::item", 2 * which + 1)
        # Two calls of one op in one function are two lines.
        assert (lines.where_op(first).line, lines.where_op(second).line) == (11, 12)


def test_a_gap_without_ops_gets_the_line_that_ran_between_its_neighbours() -> None:
    lines, _ = lines_of(PROFILED, RECORDED)
    assert lines.where_span(1_032_000, 1_088_000) == Source("/home/me/train.py", 20, "log", "call")
    hot = lines.hot(np.array([[1_030_000, 1_090_000], [1_140_000, 1_190_000]]), 1)[0]
    assert hot.source.line == 20
    # Both gaps are mostly that line's: 60 and 50 µs over two steps, less what its neighbours have.
    assert 35 <= hot.us <= 55
    assert hot.calls == 1


def test_backward_on_another_thread_has_the_line_that_called_it() -> None:
    node = row("autograd::engine::evaluate_function: MmBackward0", 1050, 10)
    other = row("aten::mul", 1050, 10)
    lines, made = lines_of([*PROFILED, {**node, "tid": 2}, {**other, "tid": 3}], RECORDED)
    assert lines.where_op(row_of(made, "autograd::engine::evaluate_function: MmBackward0")).line == 20
    assert lines.where_op(row_of(made, "aten::mul")) is None  # a thread of its own, such as a pinning one


def test_a_step_with_other_ops_still_finds_the_lines_of_the_common_ones() -> None:
    """The profiled step ran one op less and one more than the recorded one."""
    other = [row("aten::relu", 1005, 2), *(one for one in PROFILED if one["ts"] != 1020)]
    lines, made = lines_of(other, RECORDED)
    assert lines.where_op(row_of(made, "aten::mm")).line == 10
    assert lines.where_span(1_140_000, 1_188_000).line == 20


def test_each_step_has_the_lines_of_the_recorded_step_that_is_like_it() -> None:
    """Every second step validates before it trains: its first `mm` is another line's than that of other steps."""
    validates = [row("aten::mm", 1100, 10), row("aten::exp", 1110, 5), row("aten::mm", 1120, 10)]
    profiled = [step(5, 1000, 100), row("aten::mm", 1000, 10), step(6, 1100, 100), *validates]
    usual = [step(0, 0, 100), line(7, 0, 100), row("aten::mm", 10, 10)]
    other = [step(1, 200, 100), line(3, 200, 50), row("aten::mm", 210, 10), row("aten::exp", 230, 10)]
    lines, made = lines_of(profiled, [*usual, *other, line(7, 250, 50), row("aten::mm", 260, 10)])
    found = [lines.where_op(row_of(made, "aten::mm", which)) for which in range(3)]
    assert [one and one.line for one in found] == [7, 3, 7]


def test_an_op_that_one_step_runs_for_itself_leads_nothing_astray() -> None:
    """The recorded step prints a sum at its start; the only sum of the profiled ones comes late."""
    printed = [row("aten::sum", 5001, 2), *RECORDED[:1], *RECORDED[1:]]
    late = [*PROFILED, row("aten::sum", 1095, 2), row("aten::sum", 1195, 2)]
    lines, made = lines_of(late, printed)
    for which in (0, 1):
        assert lines.where_op(row_of(made, "aten::mm", which)).line == 10
        assert lines.where_op(row_of(made, "aten::item", 2 * which)).line == 11


@pytest.mark.parametrize(
    ("values", "longest"),
    [([1, 2, 3], 3), ([9, 1, 2, 3], 3), ([1, 9, 2, 2, 3], 4), ([3, 2, 1], 1), ([5, 6, 1, 2, 7, 3], 3), ([4], 1)],
)
def test_most_entries_that_never_fall(values: list[int], longest: int) -> None:
    kept = _longest_rise(np.array(values))
    assert len(kept) == longest
    assert (np.diff(kept) > 0).all()
    assert (np.diff(np.array(values)[kept]) >= 0).all()


def test_the_recorded_trace_needs_no_common_op() -> None:
    lines, made = lines_of([step(1, 0, 100), row("aten::foo", 10, 5)], RECORDED)
    assert lines.where_op(row_of(made, "aten::foo")).line == 10


FRAMES = [
    step(1, 0, 1000),
    frame("train.py(12): main", 0, 1000),
    frame("data/loading.py(129): preprocess", 10, 500),
    frame("<built-in function array>", 100, 100),
    frame("threading.py(1032): wait", 220, 50),
    frame("nn.Module: Linear_3", 600, 100),
    frame("torch/nn/modules/module.py(1743): _call_impl", 600, 100),
    frame("transformers/models/bert.py(40): forward", 610, 80),
    row("aten::linear", 620, 20),
]


def test_frames_name_the_innermost_function_that_fills_the_span() -> None:
    lines, made = lines_of(FRAMES)
    assert lines.where_span(15_000, 505_000) == Source("data/loading.py", 129, "preprocess", "function")
    # Most of this span is in main, outside preprocess.
    assert lines.where_span(300_000, 1_000_000).function == "main"
    # The user's own frame answers for an op, not the library's that it called.
    assert lines.where_op(row_of(made, "aten::linear")) == Source("train.py", 12, "main", "function")


def test_frames_share_the_time_of_a_span() -> None:
    lines, _ = lines_of(FRAMES)
    hot = {one.source.function: one.us for one in lines.hot(np.array([[0, 1_000_000]]))}
    assert hot == {"preprocess": pytest.approx(500), "main": pytest.approx(420), "forward": pytest.approx(80)}


def stacked(first: str, second: str) -> list[dict[str, Any]]:
    inner = "/env/lib/python3.7/site-packages/torch/nn/functional.py(9): linear"
    return [
        step(1, 0, 100),
        row("aten::mm", 10, 20, **{"Call stack": f"{inner};{first}"}),
        row("aten::item", 50, 20, **{"Call stack": second}),
        row("cudaStreamSynchronize", 55, 10, "cuda_runtime"),
    ]


def test_call_stacks_of_torch_1_8_hold_the_line_of_the_call() -> None:
    lines, made = lines_of(stacked("train.py(42): <module>", "train.py(54): <module>"))
    assert lines.where_op(row_of(made, "aten::mm")) == Source("train.py", 42, "<module>", "call")
    # A runtime call is where the op around it is.
    assert lines.where_op(row_of(made, "cudaStreamSynchronize")).line == 54


def test_later_call_stacks_hold_the_first_line_of_the_function() -> None:
    lines, made = lines_of(stacked("train.py(7): main", "train.py(7): main"))
    assert lines.where_op(row_of(made, "aten::mm")) == Source("train.py", 7, "main", "function")


def test_without_lines_every_answer_is_none_and_says_why() -> None:
    lines, _ = lines_of([step(1, 0, 100), row("aten::mm", 0, 10)])
    assert not lines.available
    assert "advisor run" in lines.why
    assert lines.where_op(1) is None
    assert lines.where_span(0, 100_000) is None
    assert lines.hot(np.array([[0, 100_000]])) == ()


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        ("train.py", Owner.USER),
        ("moca/library/profile.py", Owner.USER),
        ("/home/me/project/torch_utils/x.py", Owner.USER),
        ("torch/nn/modules/module.py", Owner.MACHINERY),
        ("/env/lib/python3.11/site-packages/torch/optim/sgd.py", Owner.MACHINERY),
        ("multiprocessing/spawn.py", Owner.MACHINERY),
        ("/usr/lib/python3.11/threading.py", Owner.MACHINERY),
        ("<string>", Owner.MACHINERY),
        ("transformers/pipelines/base.py", Owner.LIBRARY),
        ("/env/lib/python3.11/site-packages/timm/models.py", Owner.LIBRARY),
    ],
)
def test_whose_code_a_file_is(file: str, whose: Owner) -> None:
    assert owner(file) == whose


def test_names_that_are_no_frames_or_records() -> None:
    assert parse("nn.Module: Linear_3") is None
    assert parse("<built-in method to of Tensor object at 0x7c>") is None
    assert parse_record("aten::mm") is None
    assert parse_record("advisor:line|only|two") is None
    assert parse_record("advisor:line|/a|b/train.py|7|f") == Source("/a|b/train.py", 7, "f", "call")


def test_steps_of_the_lines_trace_do_not_count() -> None:
    computed = Computed(trace=trace(PROFILED), lines=LinesTrace(trace(RECORDED)))
    assert computed.get(Steps).count == 2


CALLS = [
    step(1, 0, 1000),
    step(2, 1000, 1000),
    frame("train.py(12): main", 0, 2000),
    *(frame("data/audio.py(61): resample", 10 + 100 * at, 95) for at in range(9)),
    *(frame("requests/sessions.py(673): send", 1010 + 100 * at, 95) for at in range(9)),
    row("aten::linear", 920, 20),
    row("aten::linear", 1920, 20),
]


def test_many_calls_of_one_function_fill_a_span_together() -> None:
    lines, _ = lines_of(CALLS)
    assert lines.where_span(10_000, 900_000) == Source("data/audio.py", 61, "resample", "function")


def test_in_the_function_that_holds_the_loop_it_is_what_that_calls_of_a_library() -> None:
    lines, _ = lines_of(CALLS)
    assert lines.where_span(1_010_000, 1_900_000) == Source("requests/sessions.py", 673, "send", "function")
    # Both together are nobody's but the loop's.
    assert lines.where_span(10_000, 1_900_000) == Source("train.py", 12, "main", "function")


def test_a_library_called_by_a_function_of_the_user_is_that_functions_work() -> None:
    lines, _ = lines_of([*CALLS, frame("rl/weights.py(88): push", 1005, 905)])
    assert lines.where_span(1_010_000, 1_900_000) == Source("rl/weights.py", 88, "push", "function")
