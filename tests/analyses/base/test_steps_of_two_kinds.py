"""Loops in which every so many steps one is far longer: what a step takes is told with one of these in each turn."""

import json

import numpy as np
import pytest

from advisor.analyses.base.scale import before_the_window, long_every, profiled_step_us
from advisor.analyses.step.step_parts import typical
from advisor.api import GpuBusy, Scale, Steps
from advisor.capture.record import StepTimes
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes

# An agent plays for 140 ms, and then learns in sixteen steps of 2 ms.
PLAYED = ([2e3] * 15 + [142e3]) * 20


@pytest.mark.parametrize(("times", "every"), [(PLAYED, 16), ([2e3] * 300, None), ([2e3, 2.5e3] * 100, None)])
def test_the_rhythm_of_the_timed_steps(times, every):
    assert long_every(StepTimes(unprofiled_us=times)) == every


def test_the_window_between_the_two_phases_does_not_break_the_rhythm():
    """Twenty steps before it, which hold one long step, and the others after it at another place of their turn."""
    assert long_every(StepTimes(unprofiled_us=PLAYED[:20] + PLAYED[45:], timed_before=20)) == 16


def test_too_few_turns_before_the_window_do_not_tell_the_mean():
    times = StepTimes(unprofiled_us=PLAYED, timed_before=20)
    assert len(before_the_window(PLAYED, times)) == len(PLAYED)
    usual = StepTimes(unprofiled_us=[2e3] * 300, timed_before=20)
    assert len(before_the_window(usual.unprofiled_us, usual)) == 20


def test_a_block_holds_one_long_step_in_its_share():
    """Half of the blocks of ten hold none of them: their median would be that of the small steps, or far above."""
    assert typical(PLAYED, 16) == pytest.approx(float(np.mean(PLAYED)))
    assert typical(PLAYED) != pytest.approx(float(np.mean(PLAYED)), rel=0.3)


@pytest.mark.parametrize(
    ("times", "step_us"),
    [
        # Two workers whose batches come in pairs, behind a long wait for the first one: four whole pairs.
        ([810.0, 145.0, 485.0, 145.0, 455.0, 145.0, 545.0, 145.0, 455.0], 315.0),
        ([100.0, 100.0, 100.0, 340.0] * 3, 160.0),
        # Pictures of other sizes in each step: the mean of all, which the caller knows.
        ([174.0, 275.0, 326.0, 202.0, 188.0, 229.0, 275.0], 1.0),
        # One step that something held up, and noise.
        ([100.0, 101.0, 99.0, 900.0, 100.0, 102.0], 100.5),
        ([100.0, 112.0, 95.0, 104.0, 100.0, 88.0], 100.0),
    ],
)
def test_what_a_step_takes_where_steps_differ(times: list[float], step_us: float) -> None:
    assert profiled_step_us(times, 1.0) == pytest.approx(step_us)


def test_shares_are_of_whole_periods_too():
    """Two workers' batches come in pairs, the very first behind a long wait: the mean and the shares leave it out."""
    rows, at = [], 0.0
    for n, length in enumerate([900.0] + [100.0, 500.0] * 4):
        rows.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": at, "dur": length})
        launched = at + length - 90
        rows.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launched, "dur": 5})
        rows.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": launched + 5, "dur": 60, "tid": 7})
        for row in rows[-3:]:
            row.update({"pid": 1, "args": {"correlation": n + 1}} | {"tid": row.get("tid", 1)})
        at += length
    made = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made"))
    steps = made.get(Steps)
    assert (steps.count, made.get(Scale).step_us, steps.stalls_us) == (8, 300.0, ())
    assert made.get(GpuBusy).share == pytest.approx(60 / 300)
