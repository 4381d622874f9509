"""What capture keeps of all steps of a run: as little after a million steps as after a hundred."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.steps.step_trend import StepTrend  # noqa: E402


def place(line: int, inner: int = 0) -> Any:
    found = ("helper.py", inner, "work") if inner else ("", 0, "")
    return SimpleNamespace(file="train.py", line=line, function="main", inner=found)


def test_stretches_become_longer_and_lose_no_step_and_no_sample() -> None:
    trend, clock = StepTrend(lambda: None, lambda: 1000), random.Random(0)
    for number in range(1, 100_001):
        if number % 50 == 0:
            trend.sampled([place(8, inner=3 if number > 50_000 else 0)])
        trend.step(int(1e6 * clock.gauss(1, 0.1)) + 1_000_000 * (number > 50_000), number)
    known = trend.record()
    assert 24 <= len(known["steps"]) <= 48
    assert sum(known["steps"]) + trend.open.steps == 100_000
    assert sum(known["samples"]) + trend.open.samples == 2000
    assert known["first"] == [sum(known["steps"][:at]) for at in range(len(known["steps"]))]
    assert known["usual_us"][0] == pytest.approx(1000, rel=0.1)
    assert known["usual_us"][-1] == pytest.approx(2000, rel=0.1)
    late = next(line for line in known["lines"] if line["file"] == "helper.py")
    assert (late["line"], late["loop_file"], late["loop_line"]) == (3, "train.py", 8)
    assert sum(late["hits"][: len(late["hits"]) // 3]) == 0
    assert sum(late["hits"]) > 900
    assert all(len(one.kept_ns) <= 16 for one in trend.done)


@pytest.mark.parametrize("rhythm", [2, 3, 4, 8])
def test_the_rhythm_of_a_loop_does_not_decide(rhythm: int) -> None:
    """One step of each few is ten times as long: kept times hold about as many of them as there are."""
    trend = StepTrend(lambda: None, lambda: None)
    for number in range(1, 50_001):
        trend.step(10_000 if number % rhythm == 0 else 1000, number)
    kept = [one for stretch in trend.done[1:] for one in stretch.kept_ns]
    assert kept.count(10_000) / len(kept) == pytest.approx(1 / rhythm, abs=0.12)


def test_waiting_for_a_core_and_memory_are_read_when_a_stretch_ends() -> None:
    waited = iter(range(0, 100_000, 500))
    trend = StepTrend(lambda: next(waited), lambda: 7)
    for number in range(1, 81):
        trend.step(1000, number)
    known = trend.record()
    assert known["steps"] == [8] * 10
    assert known["queued_us"] == [0.5] * 10
    assert known["resident_bytes"] == [7] * 10


def test_nothing_was_trained() -> None:
    assert StepTrend(lambda: None, lambda: None).record()["steps"] == []
