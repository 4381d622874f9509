"""What ops take beyond being called, against traces of known durations."""

import json
from typing import Any

import numpy as np
import pytest

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.work.op_payload import beyond_calls
from advisor.analyses.work.op_work import element_counts
from advisor.calibration.calibration import Calibration
from advisor.computed import Computed
from advisor.trace.events import Ints, Trace
from advisor.trace.read.load import read_bytes


def op(name: str, start: float, dur: float, *shapes: list[int], **args: Any) -> dict[str, Any]:
    args["Input Dims"] = list(shapes)
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": args}


def trace(rows: list[dict[str, Any]]) -> Trace:
    return read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")


def beyond(rows: list[dict[str, Any]], calibration: Calibration | None = None) -> dict[str, float] | None:
    """µs by name, summed."""
    made = trace(rows)
    every = np.ones(len(made.events), bool)
    found: Ints | None = beyond_calls(made.events, Nesting.compute(made), every, calibration)
    if found is None:
        return None
    told: dict[str, float] = {}
    for row, ns in enumerate(found.tolist()):
        told[made.events.text(row)] = told.get(made.events.text(row), 0.0) + ns / 1e3
    return told


# Forty calls on small tensors: 2 µs each, but four that take 10.
SMALL = [op("aten::mul", 20.0 * k, 10 if k % 10 == 0 else 2, [8, 16]) for k in range(40)]


def test_a_large_op_takes_what_nine_of_ten_small_ones_do_not() -> None:
    told = beyond([*SMALL, op("aten::add", 1000, 52, [64, 1024]), op("aten::sub", 1100, 1.5, [64, 1024])])
    assert told is not None
    # The four slow ones are no more than a tenth.
    assert told == {"aten::mul": 0, "aten::add": pytest.approx(50, abs=8), "aten::sub": 0}


def test_an_op_that_consists_of_others_has_no_time_of_its_own() -> None:
    inner = op("aten::addmm", 1010, 70, [64, 512], [512, 64])
    told = beyond([*SMALL, op("aten::linear", 1000, 100, [64, 512], [64, 512]), inner])
    assert told is not None
    assert told["aten::linear"] == 0
    assert told["aten::addmm"] == pytest.approx(68, abs=8)


def test_an_op_that_asks_others_before_it_works_has_time_of_its_own() -> None:
    asks = [op("aten::resolve_conj", 1000 + k, 0.5, [64, 512]) for k in (1, 2)]
    told = beyond([*SMALL, op("aten::mm", 1000, 50, [64, 512], [512, 64]), *asks])
    assert told is not None
    assert told["aten::mm"] == pytest.approx(47, abs=8)


def test_a_small_product_keeps_what_its_operations_take_in_a_large_one() -> None:
    """A row of 512 by 512 x 512: 0.5 million operations, of which a core of the table does 130,000 in a µs."""
    known = Calibration.of(None)
    row = op("aten::mm", 1000, 60, [1, 512], [512, 512])
    told = beyond([*SMALL, row], known)
    assert told is not None
    assert told["aten::mm"] == pytest.approx(2 * 512 * 512 / 1e3 / known.core_fp32_gflops.low, rel=0.01)
    large = beyond([*SMALL, op("aten::mm", 1000, 60, [512, 512], [512, 512])], known)
    assert large is not None
    assert large["aten::mm"] == pytest.approx(58, abs=8)  # never longer than it took beyond a call


def test_a_convolution_is_counted_once_with_its_backward_pass() -> None:
    shapes = ([8, 64, 5, 5], [8, 32, 10, 10], [64, 32, 3, 3])
    forward, back = (
        op("aten::mkldnn_convolution", 1000, 137, *shapes[1:]),
        op("aten::convolution_backward", 2000, 9000, *shapes),
    )
    known = Calibration.of(None)
    told = beyond([*SMALL, forward, back], known)
    assert told is not None
    assert told["aten::mkldnn_convolution"] == 0
    assert told["aten::convolution_backward"] == pytest.approx(
        6 * 8 * 64 * 25 * 288 / 1e3 / known.core_small_gflops.low, rel=0.01
    )
    alone = beyond([*SMALL, forward], known)
    assert alone is not None
    assert alone["aten::mkldnn_convolution"] == pytest.approx(135, abs=8)


def test_an_op_that_is_held_up_now_and_then_keeps_that_time() -> None:
    """Of 20 products of 50 µs, two take 4 ms: others at once may be held up as well."""
    rows = [op("aten::mm", 1000 + 5000.0 * k, 4000 if k % 10 == 3 else 50, [1, 512], [512, 512]) for k in range(20)]
    told = beyond([*SMALL, *rows], Calibration.of(None))
    assert told is not None
    assert told["aten::mm"] == pytest.approx(2 * (4000 - 10 * 50), rel=0.02)


@pytest.mark.parametrize("rows", [SMALL[:1], SMALL[:10], [op("aten::add", 10.0 * k, 5) for k in range(40)]])
def test_without_small_tensors_nothing_is_told(rows: list[dict[str, Any]]) -> None:
    assert beyond(rows) is None


def test_damaged_shapes_are_no_work() -> None:
    damaged = op("aten::add", 1000, 500)
    damaged["args"]["Input Dims"] = "[[8, 1"
    told = beyond([*SMALL, damaged])
    assert told is not None
    assert told["aten::add"] == 0


@pytest.mark.parametrize(
    ("kind", "us"),
    [
        ("MulBackward0", 100 + 300),
        ("SelectBackward0", 100),  # one op over all parts fills the whole tensor once
    ],
)
def test_a_line_has_its_own_work_and_that_of_its_backward_pass(kind: str, us: float) -> None:
    stack, node = "train.py(31): <module>", f"autograd::engine::evaluate_function: {kind}"
    rows = []
    for step in (0, 1):
        at = 3000.0 * step
        rows.append({**op(f"ProfilerStep#{step}", at, 2900), "cat": "user_annotation"})
        rows += [op("aten::neg", at + 20 * k, 2, [8], **{"Call stack": "train.py(30): <module>"}) for k in range(30)]
        one = {"Call stack": stack, "Sequence number": step + 1}
        rows.append(op("aten::mul", at + 1000, 102, [64, 1024], **one))
        rows.append(op(node, at + 1500, 400, **{"Sequence number": step + 1, "Fwd thread id": 1}))
        rows.append(op("aten::div", at + 1510, 302, [64, 1024]))
    costs = {cost.source.line: cost for cost in Computed(trace=trace(rows)).get(LineCosts).lines}
    assert costs[31].beyond_us == pytest.approx(us, abs=1)
    assert costs[30].beyond_us == 0


@pytest.mark.parametrize(
    ("dims", "counts"),
    [
        ("[[4, 8], [], [8]]", (32, 8)),
        ("[[[4, 8], [2, 8]], []]", (32, 16)),  # a list of tensors, as `cat` gets it
        ("", ()),
        ("[[4, 8", ()),
        ('["", [3]]', (3,)),
        ("[" * 100_000, ()),
        ("[[4294967296, 4294967296, 4294967296]]", (2**53,)),  # a damaged size
    ],
)
def test_numbers_are_counted_tensor_by_tensor(dims, counts):
    assert element_counts(dims) == counts
