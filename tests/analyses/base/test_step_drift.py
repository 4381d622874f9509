"""Steps that become slower over a run: stretches made up with a known truth, and the limits of chance."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from advisor.analyses.base.step_drift import StepDrift, kendall
from advisor.capture.record import RankRecord
from advisor.computed import Computed, Missing

_LINE = {"file": "train.py", "function": "log", "loop_file": "train.py", "loop_line": 40}


def drift(trend: dict[str, Any]) -> StepDrift:
    return Computed(record=msgspec.convert({"run": {"trend": trend}}, RankRecord)).get(StepDrift)


def run(
    added_us: list[float], seed: int = 0, per_stretch: int = 20, everywhere: bool = False, queued: float = 0.0
) -> dict[str, Any]:
    """Stretches of 50 steps of about 10 ms; what is added passes at line 7, or (everywhere) at all lines alike.

    queued: the part of what is added in which the loop had no core.
    """
    chance = random.Random(seed)
    usual = [10_000.0 * chance.gauss(1, 0.03) + more for more in added_us]
    slow = [0.1 + 0.9 * more / (10_000.0 + more) if not everywhere else 0.1 for more in added_us]
    hits = [sum(chance.random() < share for _ in range(per_stretch)) for share in slow]
    return {
        "first": [50 * number for number in range(len(usual))],
        "steps": [50] * len(usual),
        "usual_us": usual,
        "spent_us": [50 * one for one in usual],
        "queued_us": [50 * queued * more for more in added_us],
        "samples": [per_stretch] * len(usual),
        "lines": [
            {**_LINE, "line": 7, "hits": hits},
            {**_LINE, "line": 40, "hits": [per_stretch - one for one in hits]},
        ],
    }


def test_what_is_added_late_is_found_with_its_line_and_its_beginning() -> None:
    found = drift(run([0.0] * 30 + [5000.0] * 10))
    assert found.early_us == pytest.approx(10_000, rel=0.03)
    assert found.late_us == pytest.approx(15_000, rel=0.03)
    assert found.began == 1500
    assert found.steps == 39 * 50
    assert [line.source.line for line in found.lines] == [7]
    assert found.lines[0].loop is not None
    assert found.lines[0].loop.line == 40
    assert found.explained == pytest.approx(0.9, abs=3 * found.error)


def test_a_line_of_the_loop_itself_is_reached_from_nowhere() -> None:
    trend = run([0.0] * 30 + [5000.0] * 10)
    trend["lines"][0] |= {"loop_line": 7}
    assert drift(trend).lines[0].loop is None


def test_where_all_lines_became_slower_alike_none_is_named() -> None:
    found = drift(run([0.0] * 20 + [5000.0] * 20, everywhere=True))
    assert (found.lines, found.explained) == ((), 0.0)


def test_time_without_a_core_is_no_slowdown() -> None:
    rising = [200.0 * number for number in range(40)]
    assert drift(run(rising, everywhere=True)).late_us > 14_000
    with pytest.raises(Missing, match="did not become slower"):
        drift(run(rising, everywhere=True, queued=1.0))


def test_what_a_run_of_an_earlier_version_or_a_short_one_tells() -> None:
    with pytest.raises(Missing, match="too few steps"):
        Computed(record=RankRecord()).get(StepDrift)
    with pytest.raises(Missing, match="too few steps"):
        drift(run([0.0] * 6 + [5000.0] * 4))


def test_chance_names_a_slowdown_in_few_runs() -> None:
    """Of 500 runs of even steps that differ by 3 % from stretch to stretch, one in a thousand at most is expected."""
    found = 0
    for seed in range(500):
        try:
            drift(run([0.0] * 24, seed=seed, everywhere=True))
            found += 1
        except Missing:
            pass
    assert found <= 3


def test_kendall_is_what_it_is_said_to_be() -> None:
    assert kendall([1, 2, 3, 4]) == pytest.approx(6 / (4 * 3 * 13 / 18) ** 0.5)
    assert kendall([4, 3, 2, 1]) == -kendall([1, 2, 3, 4])
    assert kendall([1, 1, 1, 1]) == 0


def in_two_loops(added_us: list[float], first: int) -> dict[str, Any]:
    """The same, where so many stretches are those of another loop, at line 20."""
    trend = run(added_us)
    for at, line in enumerate([*trend["lines"]]):
        hits = line["hits"]
        line["hits"] = [0] * first + hits[first:]
        if at == 1:
            samples = [20] * first + [0] * (len(hits) - first)
            trend["lines"].append({**_LINE, "line": 20, "loop_line": 20, "hits": samples})
    return trend


def test_steps_of_another_loop_are_no_faster_steps() -> None:
    """Pretraining of 10 ms a step, then training of 15."""
    with pytest.raises(Missing, match="did not become slower"):
        drift(in_two_loops([0.0] * 16 + [5000.0] * 24, 16))


def test_a_loop_after_another_is_compared_with_itself() -> None:
    found = drift(in_two_loops([0.0] * 16 + [5000.0] * 16 + [12_000.0] * 16, 16))
    assert found.early_us == pytest.approx(15_000, rel=0.05)
    assert found.late_us == pytest.approx(22_000, rel=0.05)
    assert found.steps == 31 * 50
