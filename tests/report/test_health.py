"""What is said of a profile before its figures are believed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from advisor.analyses.base.launched import Launched
from advisor.api import Breakdown, Device, GpuBusy, GpuIdle, Links, Price, RankRecord, Scale, Steps, StepTimes, Trace
from advisor.capture.record import Measured, Vitals
from advisor.computed import Computed
from advisor.model import Health
from advisor.report.health import of_gaps, of_rank
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
    said = of_rank(
        known.get(Trace), record, known.get(Steps), known.get(Scale), known.get(Device), None, known.get(Launched)
    )
    return {one.id: one.message for one in said}


@pytest.mark.parametrize(
    ("unprofiled_us", "times"),
    [
        ([100.0] * 19 + [2100.0], None),  # one step in twenty collects what the others learn from, in both
        ([200.0] * 20, None),
        ([50.0] * 20, "2.0 times"),  # the long one is a stall, which is left out
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


def _on_gpu(rows_per_step: int, profiled_us: float, plain_us: float, kernels_us: float) -> Computed:
    """Steps of one kernel each; the host's rows fill the rest."""
    rows = []
    for number in range(4):
        begin = number * profiled_us
        rows.append(_row(f"ProfilerStep#{number}", "user_annotation", begin, profiled_us))
        for at in range(rows_per_step - 2):
            rows.append(_row("aten::empty", "cpu_op", begin + 10 + 0.1 * at, 0.05))
        rows.append(_row("cudaLaunchKernel", "cuda_runtime", begin + 2, 5, correlation=number + 1))
        rows.append(_row("gemm", "kernel", begin + 10, kernels_us, tid=7, device=0, stream=7, correlation=number + 1))
    trace = read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")
    return Computed(trace=trace, record=RankRecord(steps=StepTimes(unprofiled_us=[plain_us] * 20)))


def _row(name: str, cat: str, start: float, dur: float, tid: int = 1, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": dur, "args": args}


def _of(known: Computed) -> dict[str, Health]:
    parts = (known.get(Steps), known.get(Scale), known.get(Device))
    return {one.id: one for one in of_rank(known.get(Trace), known.get(RankRecord), *parts, None, known.get(Launched))}


def test_what_the_profiler_added_is_stated_with_its_cause() -> None:
    said = _of(_on_gpu(200, 1088, 640, 622))["dilation"]
    assert said.status == "note"
    assert "1.7 times as long: recording 200 events on the host took 2.2 µs each" in said.message
    assert "machine" not in said.message
    assert "dilation" not in _of(_on_gpu(200, 700, 640, 622))


def test_what_rows_do_not_explain_is_a_warning() -> None:
    said = _of(_on_gpu(20, 1088, 640, 622))["dilation"]
    assert said.status == "warning"
    assert "20 events on the host explains (22.4 µs each)" in said.message


def test_a_step_that_the_device_limits_is_so_whatever_the_profiler_added() -> None:
    """622 µs of kernels in an un-profiled step of 640 µs, recorded in one of 1,088."""
    known = _on_gpu(200, 1088, 640, 622)
    assert known.get(GpuBusy).share == pytest.approx(622 / 640)
    breakdown = known.get(Breakdown)
    assert breakdown.share("compute") == pytest.approx(622 / 640)
    assert sum(item.share for item in breakdown.items) == pytest.approx(1)
    idle = [item for item in breakdown.items if item.id.startswith("idle_")]
    assert sum(item.share for item in idle) == pytest.approx(18 / 640)
    assert sum(known.get(GpuIdle).by_cause_us.values()) == pytest.approx(sum(item.us for item in idle))
    # On the scale of the step time it is the kernels' own time.
    assert known.get(Scale).scaled(breakdown.us("compute")) == pytest.approx(622)
    kernels = np.flatnonzero(known.get(Trace).device_work)
    assert known.get(Scale).scaled(known.get(Price).spent_us(kernels)) == pytest.approx(622)


def test_what_stays_of_the_profiler_in_the_process_is_stated_with_what_it_costs() -> None:
    trace = _on_gpu(200, 1088, 640, 622).get(Trace)

    def said(before: list[float], after: list[float]) -> Health | None:
        steps = StepTimes(unprofiled_us=before + after, timed_before=len(before))
        return _of(Computed(trace=trace, record=RankRecord(steps=steps))).get("after-the-window")

    slower = said([640.0] * 20, [704.0] * 20)
    assert slower is not None
    assert "1.10 times as long as before it" in slower.message
    assert "TEARDOWN_CUPTI=1" in slower.message
    assert said([640.0] * 20, [645.0] * 20) is None
    assert said([640.0] * 5, [704.0] * 20) is None


def test_rows_cost_what_this_machine_was_measured_to_take() -> None:
    known = _on_gpu(40, 1088, 640, 622)
    assert _of(known)["dilation"].status == "warning"
    measured = Measured(quantities={"profiler_device_op_us": (20.0, 23.0, 26.0, 5)})
    record = RankRecord(steps=StepTimes(unprofiled_us=[640.0] * 20), calibration=measured)
    said = _of(Computed(trace=known.get(Trace), record=record))["dilation"]
    assert said.status == "note"
    assert "recording 40 events on the host took 11.2 µs each" in said.message


@pytest.mark.parametrize("one_launch", [True, False])
def test_idle_time_before_work_that_was_launched_is_no_wait_for_the_host(one_launch: bool) -> None:
    """Two kernels, 400 µs apart in a step of 1,000: of one graph, or the second launched when it starts."""
    rows = []
    for step in range(3):
        at, key = 1000.0 * step, 10 * step
        rows += [
            _row(f"ProfilerStep#{step}", "user_annotation", at, 1000),
            _row("cudaGraphLaunch", "cuda_runtime", at + 5, 5, correlation=key + 1),
            _row("gemm", "kernel", at + 20, 300, tid=7, device=0, stream=7, correlation=key + 1),
            _row("cudaGraphLaunch", "cuda_runtime", at + 710, 5, correlation=key + 2),
            _row("gemm", "kernel", at + 720, 290, tid=7, device=0, stream=7, correlation=key + 2 - one_launch),
        ]
    known = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made"))
    said = of_gaps(known.get(Steps), known.get(Links), known.get(GpuIdle))
    assert [one.id for one in said] == (["hidden-work"] if one_launch else [])
    assert all("0.4 ms of each step (40 %)" in one.message for one in said)
