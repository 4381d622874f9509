"""Launches whose work never reached the file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.base.device import Device
from advisor.analyses.base.launched import Launched
from advisor.analyses.base.lost_records import lost_launches, with_lost_work
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.breakdown import Breakdown
from advisor.computed import Computed
from advisor.trace.events import Trace
from advisor.trace.read.load import read_bytes


def row(name: str, category: str, ts: int, dur: int = 5, **args: object) -> dict[str, Any]:
    made = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}
    return made | ({"pid": 0, "tid": 7} if category == "kernel" else {})


def trace_of(lost: set[int], *more: dict[str, Any], steps: int = 4) -> Trace:
    """Steps of 100 µs with eight launches each; `lost`: numbers of launches without their kernel."""
    rows = [row(f"ProfilerStep#{number}", "user_annotation", 100 * number, 100) for number in range(steps)]
    for number in range(8 * steps):
        at, ids = 100 * (number // 8) + 12 * (number % 8), {"correlation": number + 1, "device": 0, "stream": 7}
        rows.append(row("aten::mm", "cpu_op", at, 8))
        rows.append(row("cudaLaunchKernel", "cuda_runtime", at + 1, correlation=number + 1))
        if number not in lost:
            rows.append(row("sgemm", "kernel", at + 7, 10, **ids))
    return read_bytes(json.dumps({"traceEvents": [*rows, *more]}).encode(), "made")


def test_a_step_that_lost_its_work_is_in_no_share() -> None:
    trace = trace_of({9, 10, 11, 12})
    computed = Computed(trace=trace)
    steps = computed.get(Steps)
    assert len(lost_launches(trace, computed.get(Launched))) == 4
    assert (steps.lost, steps.count) == (1, 3)
    assert not steps.stalls_us


@pytest.mark.parametrize(
    ("lost", "found", "left_out"),
    [
        pytest.param(set(), 0, 0, id="none"),
        pytest.param({8}, 1, 1, id="one of eight"),
        pytest.param({0, 8, 16}, 3, 0, id="all steps but one"),
        pytest.param(set(range(2, 30)), 28, 0, id="most"),
    ],
)
def test_how_much_was_lost(lost: set[int], found: int, left_out: int) -> None:
    trace = trace_of(lost)
    computed = Computed(trace=trace)
    assert len(lost_launches(trace, computed.get(Launched))) == found
    assert computed.get(Steps).lost == left_out


@pytest.mark.parametrize(
    ("lost", "measured"),
    [
        pytest.param(set(range(15)), True, id="less than half"),
        pytest.param(set(range(17)), False, id="more than half"),
    ],
)
def test_where_most_work_was_lost_the_device_is_not_measured(lost: set[int], measured: bool) -> None:
    computed = Computed(trace=trace_of(lost))
    assert computed.get(Device).measured is measured
    assert computed.get(Breakdown).on_device is measured


def test_where_no_work_names_its_launch_none_was_lost() -> None:
    """Two streams, so that their order does not link them either."""
    trace = trace_of(set(range(32)), *(row("sgemm", "kernel", 12 * at, device=0, stream=7 + at % 2) for at in range(9)))
    assert not len(lost_launches(trace, Launched.compute(trace)))
    assert Computed(trace=trace).get(Device).measured


def test_what_a_graph_captures_runs_later() -> None:
    begun, ended = (
        row(f"cudaStream{word}Capture", "cuda_runtime", at, 1) for word, at in (("Begin", 95), ("End", 199))
    )
    trace = trace_of(set(range(8, 16)), begun, ended)
    assert not len(lost_launches(trace, Launched.compute(trace)))
    assert not with_lost_work(trace, Launched.compute(trace), Computed(trace=trace).get(Steps).spans).any()
