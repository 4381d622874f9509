"""What a step takes where the host runs ahead of the device, against plain arithmetic on the events."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.analyses.base.cadence import Cadence
from advisor.api import Breakdown, GpuBusy, Scale, Steps
from advisor.computed import Computed
from advisor.trace.read.load import load, read_bytes

TRACES = Path(__file__).parents[3].parent / "shared" / "traces"
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")


def row(name: str, start: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": dur, "args": args}


def loop(steps: int, host_us: float, device_us: float, lag_us: float = 20, idle_us: float = 0) -> list[dict[str, Any]]:
    """Steps of host_us, each launching work of device_us, which begins lag_us after the launch and when it may."""
    rows, free = [], 0.0
    for n in range(steps):
        begin = n * host_us
        rows.append(row(f"ProfilerStep#{n}", begin, host_us, "user_annotation"))
        rows.append(row("cudaLaunchKernel", begin + 10, 5, "cuda_runtime", correlation=n + 1))
        start = max(free + idle_us, begin + 10 + lag_us)
        rows.append(row("gemm", start, device_us, "kernel", 7, device=0, stream=7, correlation=n + 1))
        free = start + device_us
    return rows


def computed(rows: list[dict[str, Any]]) -> Computed:
    return Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made"))


def test_a_step_is_what_the_device_takes_where_the_host_is_ahead() -> None:
    made = computed(loop(5, 100, 1_000, idle_us=50))
    steps = made.get(Steps)
    assert (steps.host_us, steps.device_us, steps.is_ahead) == (100, 1_050, True)
    assert steps.step_us == 1_050
    assert made.get(Scale).step_us == 1_050
    assert steps.profiled_us == (1_000, 1_050, 1_050, 1_050, 1_050)
    # The window begins a step before the first work ends: 5 x 1,000 of 5,250 µs.
    assert made.get(GpuBusy).share == pytest.approx(1_000 / 1_050)
    breakdown = made.get(Breakdown)
    assert sum(item.us for item in breakdown.items) == pytest.approx(1_050)
    assert sum(item.share for item in breakdown.items) == pytest.approx(1)


def test_work_that_ends_one_step_late_belongs_to_the_step_that_launched_it() -> None:
    """Host and device take the same, but the window of the rows holds the work of two steps of three only."""
    made = computed(loop(3, 100, 97, lag_us=90))
    steps = made.get(Steps)
    assert (steps.is_ahead, steps.step_us, steps.window.tolist()) == (False, 100, [[97_000, 397_000]])
    assert made.get(GpuBusy).share == pytest.approx(0.97)
    assert made.get(Breakdown).us("compute") == pytest.approx(97)


def test_a_window_that_begins_with_a_wait_holds_the_wait_of_each_step() -> None:
    """The device is idle for 60 of 100 µs in each of four steps, and the work of the last ends after the rows."""
    made = computed(loop(4, 100, 40, lag_us=85))
    assert made.get(Steps).window.tolist() == [[35_000, 435_000]]
    assert made.get(GpuBusy).share == pytest.approx(0.4)


def test_a_first_step_that_does_not_count_brings_no_wait_before_it() -> None:
    """Its work begins at 60, behind a wait, and ends at 100; that of the two steps that count at 200 and 300."""
    paced = Cadence(np.array([100, 200, 300]), 60, np.array([False, True, True]))
    busy = np.array([[60, 100], [160, 200], [260, 300]])
    assert paced.window(np.array([[0, 250]]), busy).tolist() == [[100, 300]]


def test_the_window_of_the_rows_stands_where_it_shows_the_same() -> None:
    """A queue that is as full at the end of the rows as it was at their start."""
    rows = loop(6, 100, 95)
    before = [row("gemm", -300 + 95 * n, 95, "kernel", 7, device=0, stream=7) for n in range(3)]
    steps = computed([*before, *rows]).get(Steps)
    assert steps.window.tolist() == [[0, 600_000]]


def test_a_host_that_waits_for_the_device_in_each_step_keeps_its_rows() -> None:
    made = computed(loop(4, 1_000, 300))
    steps = made.get(Steps)
    assert (steps.step_us, steps.window.tolist()) == (1_000, [[0, 4_000_000]])
    assert steps.device_us == 1_000
    assert not steps.is_ahead


def test_a_last_row_in_which_only_the_device_still_works_is_no_step() -> None:
    rows = [*loop(4, 100, 1_000), row("ProfilerStep#4", 400, 18, "user_annotation")]
    rows.append(row("gemm", 405, 5, "kernel", 9, device=0, stream=9))
    steps = computed(rows).get(Steps)
    assert (steps.count, steps.cut_off) == (4, True)


def test_a_single_step_that_is_issued_long_before_it_is_done() -> None:
    steps = computed(loop(1, 100, 1_000)).get(Steps)
    assert (steps.is_ahead, steps.step_us, steps.window.tolist()) == (True, 1_000, [[30_000, 1_030_000]])


def test_optimizer_rows_are_steps_where_nothing_else_marks_them() -> None:
    rows = [row("Optimizer.step#SGD.step", 100 * n + 80, 20, "user_annotation") for n in range(4)]
    rows += [row("aten::mm", 100 * n + 10, 50) for n in range(4)]
    steps = computed(rows).get(Steps)
    assert (steps.source, steps.count, steps.profiled_us) == ("optimizer", 3, (100, 100, 100))
    assert steps.spans[0].tolist() == [100_000, 200_000]
    # Two of them hold one step at most, and nobody knows how it is like others.
    assert computed(rows[:2] + rows[4:6]).get(Steps).source == "window"


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces beside the checkout ({TRACES.name}/)")
@pytest.mark.parametrize(
    ("name", "stated_ms"),
    [
        ("pairs/tinylm-batch-4-to-32-rtx3060/before", 22.9),
        ("pairs/tinylm-batch-4-to-32-rtx3060/after", 169.6),
        ("pairs/nanogpt-overlapped-reduction-h100-rank0of8/before", 60.2),
        ("pairs/nanogpt-overlapped-reduction-h100-rank0of8/after", 60.1),
        ("linear_2080ti", 24.5),
    ],
)
def test_real_traces_have_the_step_time_that_is_stated_with_them(name: str, stated_ms: float) -> None:
    [path] = (TRACES / name).parent.glob(f"{Path(name).name}*.json.gz")
    made = Computed(trace=load(path))
    assert made.get(Scale).step_us / 1e3 == pytest.approx(stated_ms, rel=0.01)
    if "tinylm" in name:
        assert made.get(Steps).device_us == pytest.approx(cadence_us(path), rel=1e-6)


def cadence_us(path: Path) -> float:
    """Mean distance between the ends of the work that rows launched, by correlation, from the JSON itself."""
    rows = [one for one in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if one.get("ph") == "X"]
    calls = {one["args"]["correlation"]: one["ts"] for one in rows if one.get("cat") in ("cuda_runtime", "cuda_driver")}
    marks = [one for one in rows if one["name"].startswith("ProfilerStep") and one["cat"] != "gpu_user_annotation"]
    steps = sorted((one["ts"], one["ts"] + one["dur"]) for one in marks)
    ends = []
    for start, end in steps:
        mine = [
            one["ts"] + one["dur"]
            for one in rows
            if one.get("cat") in DEVICE_WORK and start <= calls.get(one["args"].get("correlation"), -1) < end
        ]
        ends += [max(mine)] if mine else []
    return float(np.diff(ends).mean())
