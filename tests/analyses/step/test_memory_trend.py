"""Whether memory grows with the steps, on readings of real scripts."""

from __future__ import annotations

import pytest

from advisor.analyses.step.memory_trend import MemoryTrend
from advisor.capture.record import MemoryReading, RankRecord, Vitals
from advisor.computed import Missing

# (step, megabytes): the two ends of the timing phase, then after the window.
KEPT_GRAPHS = [(10, 428), (15, 433), (27, 444), (31, 447), (39, 453), (55, 467), (87, 493)]
SENTENCES = [(3, 470), (8, 474), (19, 493), (23, 502), (31, 505), (47, 526), (79, 539)]
POLICY = [(3, 469), (23, 465), (45, 926), (49, 926), (57, 926), (73, 926), (105, 926)]


def trend(series: list[tuple[int, int]], **device: int) -> MemoryTrend:
    phases = ["timing", "timed", *["after"] * (len(series) - 2)]
    readings = [
        MemoryReading(phase, step, megabytes * 10**6, **device)
        for phase, (step, megabytes) in zip(phases, series, strict=True)
    ]
    return MemoryTrend.compute(RankRecord(vitals=Vitals(memory=readings)))


def test_a_graph_kept_in_each_step_grows_evenly() -> None:
    """Independent: 26 MB in the last 32 steps."""
    found = trend(KEPT_GRAPHS)
    assert found.bytes_per_step == pytest.approx(26e6 / 32, rel=0.1)
    assert (found.grown_bytes, found.steps, found.on_device) == (65e6, 77, False)


@pytest.mark.parametrize("series", [SENTENCES, POLICY], ids=["sentences", "the window's own memory"])
def test_what_allocators_and_the_profiler_take_is_no_growth(series: list[tuple[int, int]]) -> None:
    assert trend(series).bytes_per_step == 0


def test_device_memory_counts_where_tensors_lie_there() -> None:
    found = trend(KEPT_GRAPHS, allocated_bytes=10**9)
    assert (found.on_device, found.bytes_per_step, found.now_bytes) == (True, 0, 1e9)


def test_two_readings_tell_nothing() -> None:
    with pytest.raises(Missing, match="too few steps"):
        trend(KEPT_GRAPHS[:4])
