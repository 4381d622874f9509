"""What is said of a profile before its figures are believed."""

from __future__ import annotations

import json

import pytest

from advisor.api import Device, RankRecord, Scale, Steps, StepTimes, Trace
from advisor.capture.record import Vitals
from advisor.computed import Computed
from advisor.report.health import of_rank
from advisor.trace.read.load import read_bytes


def _said(profiled_us: list[float], record: RankRecord | None) -> dict[str, str]:
    """Health by id, of steps with one op each that follow each other."""
    rows, at = [], 0.0
    for number, us in enumerate(profiled_us):
        names = {f"ProfilerStep#{number}": ("user_annotation", us), "aten::mm": ("cpu_op", us / 2)}
        for name, (kind, took) in names.items():
            rows.append({"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": took})
        at += us
    trace = read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")
    known = Computed(trace=trace, record=record)
    said = of_rank(known.get(Trace), record, known.get(Steps), known.get(Scale), known.get(Device), None)
    return {one.id: one.message for one in said}


@pytest.mark.parametrize(
    ("unprofiled_us", "times"),
    [
        ([100.0] * 19 + [2100.0], None),  # one step in twenty collects what the others learn from, in both
        ([200.0] * 20, None),
        ([50.0] * 20, "4.0 times"),
        ([20.0] * 19 + [620.0], "4.0 times"),
    ],
)
def test_steps_that_differ_are_no_disturbed_ones(unprofiled_us: list[float], times: str | None) -> None:
    record = RankRecord(steps=StepTimes(unprofiled_us=unprofiled_us))
    said = _said([100.0] * 19 + [2100.0], record)
    assert times is None if "dilation" not in said else times is not None and times in said["dilation"]


def test_a_bare_trace_is_compared_with_nothing() -> None:
    assert "dilation" not in _said([10.0] * 9 + [1000.0], None)


@pytest.mark.parametrize(("queued_us", "share"), [(100.0, None), (500.0, "50 %"), (None, None)])
def test_step_times_of_a_busy_machine_are_called_so(queued_us: float | None, share: str | None) -> None:
    vitals = Vitals(timed_steps=10, timed_us=1000.0, loop_queued_us=queued_us)
    said = _said([100.0] * 5, RankRecord(steps=StepTimes(unprofiled_us=[100.0] * 10), vitals=vitals))
    assert share is None if "busy-cores" not in said else share is not None and share in said["busy-cores"]
