"""Stretches in which the host neither launches nor waits: its own work, whoever does it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes

Row = dict[str, Any]


def row(name: str, start: float, dur: float, cat: str = "cpu_op", **args: Any) -> Row:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": args}


def launched(start: float, number: int, dur: float = 20) -> list[Row]:
    """A call and its kernel, which starts at once."""
    kernel = row("gemm", start + 5, dur, "kernel", device=0, stream=7, correlation=number)
    return [row("cudaLaunchKernel", start, 5, "cuda_runtime", correlation=number), {**kernel, "pid": 0, "tid": 7}]


def idle_of(*rows: Row | list[Row]) -> GpuIdle:
    every = [one for some in rows for one in (some if isinstance(some, list) else [some])]
    step = row("ProfilerStep#1", 0, 10_000, "user_annotation")
    return Computed(trace=read_bytes(json.dumps({"traceEvents": [step, *every]}).encode(), "made")).get(GpuIdle)


def us(idle: GpuIdle) -> dict[str, float]:
    """µs of the causes that have more than a rest of what lies around launches."""
    return {cause: of for cause, of in idle.by_cause_us.items() if of > 200}


def test_an_op_that_works_between_its_launches_is_no_slow_launching() -> None:
    """A decoder: kernels 2 ms apart in one op."""
    starts = [100 + 2_000 * at for at in range(5)]
    idle = idle_of(row("torchcodec_ns::get_frames", 50, 9_900), *(launched(at, n) for n, at in enumerate(starts, 1)))
    assert us(idle) == {"idle_host": pytest.approx(9_800, abs=150)}
    assert idle.top("idle_host")[0].host == "torchcodec_ns::get_frames"


def test_ops_on_tensors_of_the_host_are_its_work_however_short() -> None:
    """Forty of 200 µs between two launches; each by itself is short enough to launch something."""
    ops = [row("aten::constant_pad_nd", 200 + 210 * at, 200) for at in range(40)]
    idle = idle_of(row("aten::mm", 50, 60), launched(60, 1), *ops, row("aten::mm", 9_000, 60), launched(9_010, 2, 900))
    assert us(idle) == {"idle_host": pytest.approx(8_950, abs=150)}


def test_ops_that_launch_one_after_the_other_stay_slow_launching() -> None:
    """A launch every 500 µs: eager ops."""
    starts = [100 + 500 * at for at in range(20)]
    rows = [row("aten::add", at - 40, 480) for at in starts]
    idle = idle_of(rows, *(launched(at, n) for n, at in enumerate(starts, 1)))
    assert set(us(idle)) == {"idle_launch"}


def test_a_wait_within_such_a_stretch_is_a_wait() -> None:
    wait = row("cudaStreamSynchronize", 150, 4_000, "cuda_runtime")
    idle = idle_of(
        row("aten::item", 50, 4_110),
        launched(60, 1, 3_900),
        wait,
        row("aten::mm", 4_800, 60),
        launched(4_810, 2, 5_000),
    )
    # The kernel of 3.9 ms hides most of the wait; the host takes 0.6 ms to launch again.
    assert idle.by_cause_us["idle_host"] < 900
    assert sum(idle.by_cause_us.values()) < 1_300
