"""Profiled steps that something slowed which is not there without the profiler."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from advisor.analyses.base.odd_steps import slowed
from advisor.analyses.step.step_parts import StepParts
from advisor.api import RankRecord, Steps, StepTimes
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes

ALIKE = [100.0, 102.0, 98.0, 101.0, 99.0] * 6


def times(profiled_us: list[float], plain_us: list[float] | None = None, ranks: int = 1, **more: Any) -> RankRecord:
    steps = StepTimes(source="optimizer", unprofiled_us=plain_us or ALIKE, profiled_us=profiled_us, **more)
    return RankRecord(world_size=ranks, steps=steps)


@pytest.mark.parametrize(
    ("profiled", "count"),
    [
        ([110.0] * 6 + [180.0] * 14, 14),  # from the seventh on its tensors are mapped anew in each step
        ([110.0] * 3 + [180.0] * 4, 4),
        ([110.0] * 2 + [180.0] * 5, 0),  # two steps are too few to stand for the loop
        ([110.0] * 14 + [180.0] * 6, 0),  # most are as usual: bursts of other work
        ([180.0] * 20, 0),  # all alike: it is the profiler, or the machine
        ([110.0, 125.0, 112.0, 128.0, 118.0] * 4, 0),
        ([110.0, 180.0, 180.0, 180.0], 0),
    ],
)
def test_the_quickest_stand_for_the_loop_if_the_median_step_is_slowed(profiled: list[float], count: int) -> None:
    assert int(slowed(times(profiled)).sum()) == count


def test_steps_that_differ_without_the_profiler_are_the_loops_own() -> None:
    """Batches of short and long texts."""
    assert not slowed(times([110.0] * 6 + [180.0] * 14, [60.0, 100.0] * 20)).any()


def test_few_steps_without_the_profiler_tell_nothing() -> None:
    assert not slowed(times([110.0] * 6 + [180.0] * 14, ALIKE[:19])).any()


def test_a_stall_of_one_step_is_in_no_part_of_the_others() -> None:
    """Ten steps of 100 µs that fetch for 10, and one that waits for its batch for 50 ms: the fetch takes 10 µs."""
    lengths = [100.0] * 5 + [50_090.0] + [100.0] * 5
    starts: list[float] = np.cumsum([0.0, *lengths[:-1]]).tolist()
    rows = [
        row(f"ProfilerStep#{at}", "user_annotation", *one) for at, one in enumerate(zip(starts, lengths, strict=True))
    ]
    fetch = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    rows += [row(fetch, "user_annotation", start, us - 90) for start, us in zip(starts, lengths, strict=True)]
    rows += [row("aten::mul", "cpu_op", start + us - 80, 70) for start, us in zip(starts, lengths, strict=True)]
    none = [0.0] * 11
    profiled = {"fetch": [us - 90 for us in lengths], "backward": none, "optimizer": none, "rest": [90.0] * 11}
    plain = {name: [us[0]] * 30 for name, us in profiled.items()}
    record = times(lengths, unprofiled_parts_us=plain, profiled_parts_us=profiled)
    known = Computed(trace=read_bytes(json.dumps({"traceEvents": rows}).encode(), "made"), record=record)
    steps = known.get(Steps)
    assert (steps.count, steps.stalls_us) == (10, (50_090.0,))
    assert steps.kept(profiled["fetch"]).tolist() == [10.0] * 10
    assert steps.kept([10.0, 50.0]).tolist() == [10.0, 50.0]  # of other steps: all
    part = known.get(StepParts).parts[0]
    assert (part.name, part.recorded_us, part.plain_us) == ("fetch", pytest.approx(10.0), pytest.approx(10.0))


def test_slowed_steps_are_in_no_share() -> None:
    """Four steps of 100 µs, then six of 200, each with an op that takes half of it."""
    lengths = [100.0] * 4 + [200.0] * 6
    starts: list[float] = np.cumsum([0.0, *lengths[:-1]]).tolist()
    rows = [
        row(f"ProfilerStep#{at}", "user_annotation", *one) for at, one in enumerate(zip(starts, lengths, strict=True))
    ]
    rows += [row("aten::mul", "cpu_op", start + 10, us / 2) for start, us in zip(starts, lengths, strict=True)]
    profiled = {name: [0.0] * 10 for name in ("fetch", "backward", "optimizer")} | {"rest": lengths}
    plain = {name: [us[0]] * 30 for name, us in profiled.items()}

    def analysed(ranks: int) -> Computed:
        trace = read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")
        record = times(lengths, ranks=ranks, unprofiled_parts_us=plain, profiled_parts_us=profiled)
        return Computed(trace=trace, record=record)

    steps = analysed(1).get(Steps)
    assert (steps.count, len(steps.stalls_us), steps.step_us) == (4, 6, 100.0)
    rest = analysed(1).get(StepParts).parts[-1]
    assert (rest.recorded_us, rest.plain_us) == (pytest.approx(100.0), pytest.approx(100.0))
    # Ranks are compared step by step; what the profiler made longer is then of the same steps.
    assert analysed(2).get(Steps).count == 10
    rest = analysed(2).get(StepParts).parts[-1]
    assert (rest.recorded_us, rest.plain_us) == (pytest.approx(160.0), pytest.approx(100.0))


def row(name: str, cat: str, start: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}
