"""Work of the device that only the op's number links to its calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.base.launched import Launched
from advisor.trace.read.load import read_bytes


def row(name: str, category: str, ts: int, op: int, tid: int = 1) -> dict[str, Any]:
    args = {"External id": op} | ({"device": 0, "stream": tid} if tid > 1 else {})
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1 - (tid > 1),
        "tid": tid,
        "ts": ts,
        "dur": 2,
        "args": args,
    }


def launches(*rows: dict[str, Any]) -> list[int]:
    """When the call began that each work has, in the order of the rows given; -1 for none."""
    trace = read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")
    events, launch = trace.events, Launched.compute(trace).launch
    begun = {int(events.start_ns[at]): launch[at] for at in range(len(events)) if trace.device_work[at]}
    base = int(events.start_ns.min()) - min(one["ts"] for one in rows) * 1000
    found = [begun[base + one["ts"] * 1000] for one in rows if one["tid"] > 1]
    return [int(events.start_ns[at] - base) // 1000 if at >= 0 else -1 for at in found]


def call(ts: int, op: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return row(name, "cuda_runtime", ts, op)


def kernel(ts: int, op: int, stream: int = 7) -> dict[str, Any]:
    return row("gemm", "kernel", ts, op, stream)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param((call(10, 1), call(20, 1), kernel(30, 1), kernel(40, 1, 8)), [10, 20], id="one for each"),
        pytest.param(
            (call(10, 1, "cudaGraphLaunch"), *(kernel(at, 1, at % 2 + 7) for at in (30, 33, 36))), [10] * 3, id="graph"
        ),
        pytest.param((call(10, 1), kernel(30, 2), kernel(40, 1, 8)), [-1, 10], id="another op"),
        pytest.param((call(10, 0), kernel(30, 0), kernel(40, 0, 8)), [-1, -1], id="outside of ops"),
        pytest.param((call(10, 1), kernel(5, 1), kernel(40, 1, 8)), [-1, 10], id="before the call"),
        pytest.param(
            (call(10, 1, "cudaMemcpyAsync"), call(20, 1), kernel(30, 1), kernel(40, 2, 8)), [20, -1], id="by kind"
        ),
    ],
)
def test_the_calls_of_one_op(rows: tuple[dict[str, Any], ...], expected: list[int]) -> None:
    assert launches(*rows) == expected
