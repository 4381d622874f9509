"""Steps, their window, the scale of savings, and which step device work belongs to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.api import Device, Launches, RankRecord, Scale, Steps, StepTimes, draw
from advisor.computed import Computed, Missing
from advisor.trace.read.load import read_bytes


def row(name: str, start: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": dur, "args": args}


def step(number: int, start: float, dur: float, cat: str = "user_annotation", tid: int = 1) -> dict[str, Any]:
    return row(f"ProfilerStep#{number}", start, dur, cat, tid)


def analysed(rows: list[dict[str, Any]], record: RankRecord | None = None) -> Computed:
    return Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made"), record=record)


def test_steps_that_follow_each_other_share_one_window() -> None:
    op = row("aten::mm", 220, 5)
    steps = analysed([step(3, 100, 50), step(4, 150, 60), step(5, 215, 40), op]).get(Steps)
    assert (steps.count, steps.labels[0], steps.source) == (3, "ProfilerStep#3", "user")
    assert steps.window.tolist() == [[100_000, 255_000]]
    assert steps.step_us == pytest.approx(155 / 3)
    assert steps.profiled_us == (50, 60, 40)
    assert steps.median_index == 0


def test_steps_further_apart_than_a_median_step_are_separate_windows() -> None:
    op = row("aten::mm", 1010, 5)
    steps = analysed([step(3, 100, 50), step(4, 150, 50), step(9, 1000, 50), op]).get(Steps)
    assert steps.window.tolist() == [[100_000, 200_000], [1_000_000, 1_050_000]]
    assert steps.window_ns == 150_000
    assert steps.step_of(steps.spans[:, 0]).tolist() == [0, 1, 2]
    assert steps.step_of(steps.window[:1, 1] + 1).tolist() == [-1]


def test_copies_of_step_rows_on_the_device_are_no_steps() -> None:
    rows = [step(1, 100, 50), step(1, 120, 10, "gpu_user_annotation", 7), step(2, 150, 50), row("aten::mm", 160, 5)]
    assert analysed(rows).get(Steps).count == 2


def test_a_last_step_in_which_nothing_was_called_is_none() -> None:
    """The profiler opens a step after the last batch and stops; a step with a single op in it is one."""
    rows = [step(1, 100, 50), row("aten::mm", 110, 5), step(2, 150, 50), row("aten::mm", 160, 5), step(3, 200, 2)]
    steps = analysed(rows).get(Steps)
    assert (steps.count, steps.cut_off, steps.window.tolist()) == (2, True, [[100_000, 200_000]])
    steps = analysed([*rows, row("aten::mm", 201, 1)]).get(Steps)
    assert (steps.count, steps.cut_off) == (3, False)


def test_without_steps_the_window_spans_ops_and_device_work() -> None:
    rows = [row("aten::mm", 100, 10), row("k", 150, 50, "kernel", 7), row("PyTorch Profiler (0)", 0, 900, "Trace")]
    steps = analysed(rows).get(Steps)
    assert (steps.source, steps.count, steps.window.tolist()) == ("window", 1, [[100_000, 200_000]])


def test_without_steps_the_loop_is_the_thread_that_is_longest_in_ops() -> None:
    many = [row("aten::empty", 100 + i, 1, tid=3) for i in range(0, 40, 2)]
    steps = analysed([row("aten::mm", 100, 90, tid=2), *many]).get(Steps)
    made = read_bytes(json.dumps({"traceEvents": [row("aten::mm", 100, 90, tid=2), *many]}).encode(), "made")
    assert made.events.threads[steps.main_thread].tid == "2"
    # A thread that fetches or steps an optimizer is the loop's, however short.
    fetch = row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 150, 1, "user_annotation", 3)
    rows = [row("aten::mm", 100, 90, tid=2), *many, fetch]
    made = read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")
    assert made.events.threads[analysed(rows).get(Steps).main_thread].tid == "3"


def test_a_trace_without_work_has_no_steps() -> None:
    with pytest.raises(Missing, match="neither CPU ops nor device work"):
        analysed([row("PyTorch Profiler (0)", 0, 900, "Trace")]).get(Steps)


def test_device_work_belongs_to_the_step_of_its_launch() -> None:
    """Launched in step 1, still running in step 2 and after the window: counted once, in step 1; orphans by start."""
    rows = [
        step(1, 100, 100),
        step(2, 200, 100),
        row("cudaLaunchKernel", 150, 5, "cuda_runtime", correlation=1),
        row("k1", 250, 10, "kernel", 7, correlation=1),
        row("cudaLaunchKernel", 290, 5, "cuda_runtime", correlation=2),
        row("k2", 400, 10, "kernel", 7, correlation=2),
        row("orphan", 220, 10, "kernel", 7, correlation=99),
        row("cudaLaunchKernel", 50, 5, "cuda_runtime", correlation=3),
        row("before", 210, 5, "kernel", 7, correlation=3),
    ]
    launches = analysed(rows).get(Launches)
    assert launches.kernels_per_step == 3 / 2
    assert launches.per_step == 1


def test_a_reused_correlation_links_to_the_last_launch_before() -> None:
    rows = [
        step(1, 100, 100),
        step(2, 200, 100),
        row("cudaLaunchKernel", 110, 5, "cuda_runtime", correlation=7),
        row("k", 120, 10, "kernel", 7, correlation=7),
        row("cudaLaunchKernel", 210, 5, "cuda_runtime", correlation=7),
        row("k", 260, 10, "kernel", 7, correlation=7),
    ]
    assert analysed(rows).get(Launches).queue_delay_us == pytest.approx((10 + 50) / 2)


def test_the_scale_is_the_unprofiled_median_where_capture_timed_it() -> None:
    rows = [step(1, 0, 200), step(2, 200, 200), row("aten::mm", 210, 5)]
    timed = RankRecord(steps=StepTimes(source="loader", unprofiled_us=[100.0, 110.0, 500.0]))
    scale = analysed(rows, timed).get(Scale)
    assert (scale.step_us, scale.factor) == (110, pytest.approx(110 / 200))
    assert scale.unprofiled.mean == pytest.approx(710 / 3)
    assert analysed(rows, timed).get(Steps).source == "loader"
    only_mean = RankRecord(steps=StepTimes(unprofiled_mean_us=90.0, count=40))
    assert analysed(rows, only_mean).get(Scale).step_us == 90
    assert analysed(rows).get(Scale).step_us == 200


@pytest.mark.parametrize(("longest", "stalls"), [(120.0, (2000.0,)), (900.0, ())])
def test_a_profiled_step_that_something_held_up_is_left_out(longest: float, stalls: tuple[float, ...]) -> None:
    """One of ten takes ten times the median. Where steps without the profiler do so now and then, it counts."""
    starts = [200.0 * number for number in range(5)] + [2800.0 + 200.0 * number for number in range(5)]
    lengths = [200.0] * 4 + [2000.0] + [200.0] * 5
    rows = [step(number, *one) for number, one in enumerate(zip(starts, lengths, strict=True), 1)]
    rows += [row("aten::mm", start + 10, 100.0) for start in starts]
    timed = RankRecord(steps=StepTimes(source="loader", unprofiled_us=[100.0] * 30 + [longest]))
    steps = analysed(rows, timed).get(Steps)
    assert (steps.count, steps.stalls_us) == (10 - len(stalls), stalls)
    assert steps.step_us == pytest.approx(200.0 if stalls else 380.0)
    assert len(steps.labels) == steps.count
    assert analysed(rows).get(Steps).count == 10  # of a trace of others nothing of the kind is known
    # Ranks are compared step by step.
    assert analysed(rows, RankRecord(world_size=2, steps=timed.steps)).get(Steps).count == 10


def test_a_saving_never_exceeds_the_step() -> None:
    timed = RankRecord(steps=StepTimes(unprofiled_us=[100.0]))
    scale = analysed([step(1, 0, 200)], timed).get(Scale)
    saving = scale.saving(50, 500, "how")
    assert (saving.low_us, saving.high_us) == (25, 100)
    assert scale.saving(-5, -1, "how").high_us == 0


def device_of(properties: list[dict[str, Any]], runtime: str, kernel: bool = True) -> Device:
    rows = [row("aten::mm", 0, 9), row(runtime, 1, 2, "cuda_runtime", correlation=1)]
    if kernel:
        rows.append(row("gemm", 5, 9, "kernel", 7, correlation=1, device=0, stream=7))
    document = {"deviceProperties": properties, "traceEvents": rows}
    return Computed(trace=read_bytes(json.dumps(document).encode(), "made")).get(Device)


def test_the_compute_capability_is_nvidias_alone() -> None:
    nvidia = [{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0}]
    amd = [{"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4}]
    assert device_of(nvidia, "cudaLaunchKernel").capability == (9, 0)
    assert device_of(amd, "hipLaunchKernel").capability is None
    assert device_of(amd, "hipLaunchKernel").kind == "rocm"


def test_launches_without_device_work_are_a_profiler_that_was_not_allowed() -> None:
    device = device_of([], "cudaLaunchKernel", kernel=False)
    assert not device.measured
    assert "not allowed to read the device" in device.why


def test_visible_devices_without_work_are_not_counted() -> None:
    device = device_of([{"id": i, "name": "NVIDIA A100"} for i in range(8)], "cudaLaunchKernel")
    assert (device.count, device.name) == (1, "NVIDIA A100")


def test_launches_of_a_drawing() -> None:
    drawing = draw("step  [1    ][2    ]\ncpu   [F ]   [F ]\ngpu 7  [K ]   [K ]", us=100, F="aten::mm")
    launches = Computed(trace=read_bytes(json.dumps(dict(drawing)).encode(), "drawn")).get(Launches)
    assert (launches.per_step, launches.kernels_per_step, launches.graphs) == (1, 1, False)
    assert launches.launch_us == 5


@pytest.mark.parametrize(
    ("long", "expected"),
    [
        pytest.param({3: 500, 7: 500}, 180.0, id="two: the mean"),
        pytest.param({3: 500}, 100.0, id="one: chance"),
        pytest.param({3: 140, 5: 140, 7: 140}, 100.0, id="none far longer"),
        pytest.param({}, 100.0, id="all alike"),
    ],
)
def test_of_a_trace_in_which_long_steps_recur_the_scale_is_the_mean(long: dict[int, int], expected: float) -> None:
    """Ops of 80 µs in each step are 80 µs on that scale; on the median's they would be less than half."""
    rows, ts = [], 0
    for number in range(1, 11):
        dur = long.get(number, 100)
        rows += [step(number, ts, dur), row("aten::mm", ts + 10, 80)]
        ts += dur
    scale = analysed(rows).get(Scale)
    assert scale.step_us == pytest.approx(expected)
    if len(long) == 2:
        assert scale.scaled(80) == pytest.approx(80)
