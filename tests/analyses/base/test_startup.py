"""What is start-up in a trace, and what is said of a window that holds nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.base.launched import Launched
from advisor.analyses.base.startup import AUTOTUNING, COMPILATION, FIRST_CALLS, FIRST_LAUNCHES
from advisor.api import Device, RankRecord, Scale, Steps, Trace
from advisor.computed import Computed
from advisor.report import health
from advisor.trace.read.load import read_bytes

Row = dict[str, Any]


def row(name: str, start: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> Row:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": dur, "args": args}


def call(name: str, start: float, dur: float, correlation: int = 0) -> Row:
    return row(name, start, dur, "cuda_runtime", correlation=correlation)


class Loop:
    """A loop drawn step by step: each launches the same three kernels after what `start` adds."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.at, self.number = 1_000.0, 0

    def step(
        self, *extra: tuple[str, float, str], launch_us: float = 5, marks: bool = True, loads_us: float = 2
    ) -> None:
        """extra: (name, µs, category) of rows before the step's work; loads_us: of `sum`, before its launch."""
        begin = self.at
        for name, us, cat in extra:
            self.rows.append(row(name, self.at, us, cat, correlation=0))
            self.at += us
        for kernel in ("gemm", "relu", "sum"):
            self.number += 1
            quiet_us = loads_us if kernel == "sum" else 2
            self.rows.append(row("aten::" + kernel, self.at, launch_us + 8 + quiet_us))
            self.rows.append(call("cudaLaunchKernel", self.at + quiet_us, launch_us, self.number))
            self.at += launch_us + 8 + quiet_us
            self.rows.append(row(kernel, self.at, 200, "kernel", 7, device=0, stream=7, correlation=self.number))
            self.at += 200
        if marks:
            self.rows.append(row(f"ProfilerStep#{self.number // 3}", begin, self.at - begin, "user_annotation"))

    def steps(self, record: RankRecord | None = None) -> Steps:
        return self.computed(record).get(Steps)

    def computed(self, record: RankRecord | None = None) -> Computed:
        return Computed(trace=read_bytes(json.dumps({"traceEvents": self.rows}).encode(), "made"), record=record)


RUNTIME = "cuda_runtime"


@pytest.mark.parametrize(
    ("name", "us", "cat"),
    [
        ("cudaFree", 700_000, RUNTIME),
        ("cudaDeviceGetStreamPriorityRange", 2_000_000, RUNTIME),
        ("cuModuleLoadData", 400, RUNTIME),
        ("cuLibraryLoadData", 400, RUNTIME),
        ("hipModuleLoad", 400, RUNTIME),
        ("cudaMalloc", 400, RUNTIME),
        ("_compile.compile_inner (dynamo_timed)", 9_000, "cpu_op"),
    ],
)
def test_a_first_step_that_loads_is_no_step(name: str, us: float, cat: str) -> None:
    loop = Loop()
    loop.step((name, us, cat))
    for _ in range(3):
        loop.step()
    steps = loop.steps()
    assert (steps.count, steps.startup.steps, steps.startup.steady) == (3, 1, True)
    assert steps.startup.us == pytest.approx(us + 3 * 215)
    assert steps.startup.calls[0][1:] == (us, 1)
    assert steps.step_us == pytest.approx(3 * 215)


@pytest.mark.parametrize(
    ("name", "cat"),
    [("cudaMalloc", RUNTIME), ("cudaFree", RUNTIME), ("_compile.compile_inner (dynamo_timed)", "cpu_op")],
)
def test_what_every_step_does_is_no_startup(name: str, cat: str) -> None:
    loop = Loop()
    for _ in range(4):
        loop.step((name, 5_000, cat))
    assert (loop.steps().count, loop.steps().startup.steps) == (4, 0)


def test_a_kernel_that_is_loaded_at_its_first_launch() -> None:
    loop = Loop()
    loop.step(launch_us=6_000)
    for _ in range(3):
        loop.step()
    startup = loop.steps().startup
    assert (startup.steps, startup.calls[0][0], startup.calls[0][2]) == (1, FIRST_LAUNCHES, 3)


def test_an_op_that_loads_before_its_first_launch() -> None:
    """Nothing of the driver has a row there: 14 ms of `aten::sum`, at its first call alone."""
    loop = Loop()
    loop.step(loads_us=14_000)
    for _ in range(3):
        loop.step()
    startup = loop.steps().startup
    assert (startup.steps, startup.calls[0]) == (1, (FIRST_CALLS, 14_013.0, 1))


def test_an_op_that_takes_long_before_each_launch_loads_nothing() -> None:
    loop = Loop()
    for _ in range(4):
        loop.step(loads_us=14_000)
    assert (loop.steps().count, loop.steps().startup.steps) == (4, 0)


def test_a_first_call_after_many_steps_is_not_the_first() -> None:
    loop = Loop()
    loop.number = 300
    loop.step(loads_us=14_000)
    for _ in range(3):
        loop.step()
    assert (loop.steps().count, loop.steps().startup.steps) == (4, 0)


def test_a_window_of_few_kernels_that_loads_is_nothing_but_startup() -> None:
    loop = Loop()
    loop.step(marks=False, loads_us=14_000)
    assert not loop.steps().startup.steady


def test_launches_that_a_full_queue_holds_back_are_no_startup() -> None:
    """The queue was filled before; the first launch that is seen of a kernel waits for the device like any other."""
    rows = [row(f"ProfilerStep#{n}", 1_000 * n, 1_000, "user_annotation") for n in range(3)]
    rows += [row("before", 10 * n - 5_000, 10, "kernel", 7, device=0, stream=7) for n in range(1_100)]
    for n in range(3):
        rows += [
            call("cudaLaunchKernel", 1_000 * n + 10, 900, 2 * n + 1),
            call("cudaLaunchKernel", 1_000 * n + 950, 5, 2 * n + 2),
        ]
        for at, name in ((1, "gemm"), (2, "relu")):
            rows.append(
                row(name, 6_000 + 1_000 * n + 400 * at, 400, "kernel", 7, device=0, stream=7, correlation=2 * n + at)
            )
    steps = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")).get(Steps)
    assert (steps.count, steps.startup.steps) == (3, 0)


def test_a_convolution_whose_library_times_algorithms() -> None:
    loop = Loop()
    loop.rows += [
        row("aten::cudnn_convolution", 1_010, 4_000),
        call("cudaEventSynchronize", 2_000, 300),
        call("cudaEventElapsedTime", 2_400, 2),
    ]
    loop.step(("aten::empty", 5_000, "cpu_op"))
    for _ in range(3):
        loop.step()
    startup = loop.steps().startup
    assert (startup.steps, startup.calls[0]) == (1, (AUTOTUNING, 4_000.0, 1))


def test_a_long_first_step_without_startup_calls_counts() -> None:
    loop = Loop()
    loop.step(("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 50_000, "user_annotation"))
    for _ in range(3):
        loop.step()
    assert loop.steps().count == 4


def test_steps_that_become_steady_one_by_one() -> None:
    """Less than a thirtieth of the second step is in calls that load; it is still more than twice as long as others."""
    loop = Loop()
    loop.step(("cuModuleLoadData", 9_000, RUNTIME))
    loop.step(("cuModuleLoadData", 30, RUNTIME), ("aten::empty", 1_500, "cpu_op"))
    for _ in range(3):
        loop.step()
    assert (loop.steps().count, loop.steps().startup.steps) == (3, 2)


def test_a_window_of_nothing_but_startup_says_so() -> None:
    loop = Loop()
    loop.step(("cudaFree", 90_000, RUNTIME), ("_compile.compile_inner (dynamo_timed)", 9_000, "cpu_op"), marks=False)
    computed = loop.computed()
    steps = computed.get(Steps)
    assert (steps.source, steps.startup.steady) == ("window", False)
    assert {name for name, _, _ in steps.startup.calls} == {"cudaFree", COMPILATION}
    said = health.of_rank(
        computed.get(Trace), None, steps, computed.get(Scale), computed.get(Device), None, computed.get(Launched)
    )
    assert any(one.id == "not-steady" and one.status == "warning" and "99 ms" in one.message for one in said)


def test_a_small_share_of_startup_leaves_a_step_a_step() -> None:
    loop = Loop()
    loop.step(("cuModuleLoadData", 5, RUNTIME))
    for _ in range(3):
        loop.step()
    assert (loop.steps().count, loop.steps().startup.us) == (4, 0)


def test_the_host_steps_that_capture_marked_are_never_startup() -> None:
    """On a CPU capture waits until steps are alike; what compiles in its window is a finding."""
    rows = [row(f"ProfilerStep#{n}", 100 * n, 100, "user_annotation") for n in range(4)]
    rows += [row("aten::mm", 100 * n + 10, 50) for n in range(4)]
    rows.append(row("_compile.compile_inner (dynamo_timed)", 20, 60))
    trace = read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")
    assert Computed(trace=trace, record=RankRecord()).get(Steps).count == 4
    assert Computed(trace=trace).get(Steps).count == 3


@pytest.mark.parametrize(("number", "steady"), [(0, False), (2, False), (3, True), (120, True)])
def test_one_late_step_that_allocates_is_no_startup(number: int, steady: bool) -> None:
    """Nobody sees whether other steps allocate, too; the number of the step says that it is not the first."""
    loop = Loop()
    loop.step(("cudaMalloc", 900, RUNTIME))
    loop.rows[-1]["name"] = f"ProfilerStep#{number}"
    assert loop.steps().startup.steady is steady
    loop.rows.append(row("cuModuleLoadData", 1_000, 400, RUNTIME, correlation=0))
    assert not loop.steps().startup.steady


def test_a_window_without_steps_that_goes_on_for_long_begins_after_startup() -> None:
    """Ten times as long as start-up it holds more than a first pass, whatever its steps are."""
    for passes in (3, 40):
        loop = Loop()
        loop.rows.append(row("aten::linear", 1_000, 1_001))
        loop.step(("cudaFree", 1_000, RUNTIME), marks=False)
        for _ in range(passes):
            loop.step(marks=False)
        steps = loop.steps()
        assert (steps.source, steps.count, steps.startup.steady) == ("window", 1, passes == 40)
        assert steps.startup.us == 1_000
    assert steps.window.tolist() == [[2_000_000, 2_000_000 + 41 * 3 * 215_000]]
