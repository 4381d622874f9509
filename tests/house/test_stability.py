"""The arithmetic of the stability benchmark, on runs whose agreement is counted by hand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks" / "pairs"


@pytest.fixture(scope="module")
def stability() -> Iterator[Any]:
    """The benchmark as a module: its folder is no package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("stability")
    finally:
        sys.path.remove(str(BENCHMARKS))


def run(stability: Any, *findings: tuple[str, float, float]) -> Any:
    """A run of steps of 1 ms. findings: (rule, low, high), in per cent."""
    outcomes = [
        {
            "rule": rule,
            "findings": [
                {
                    "where": [{"file": "/somewhere/train.py", "line": 7}],
                    "saving": {"low_us": 10 * low, "high_us": 10 * high},
                    "recoverable": True,
                }
            ],
        }
        for rule, low, high in findings
    ]
    return stability.of_report({"metrics": {"step_time_us": 1000.0}, "outcomes": outcomes})


def test_runs_agree_where_they_have_the_same_findings_of_five_per_cent(stability: Any) -> None:
    runs = [
        run(stability, ("a", 1, 20), ("b", 0, 4)),
        run(stability, ("a", 5, 30)),
        run(stability, ("a", 2, 10), ("b", 1, 6)),
    ]
    assert stability.agreement(runs) == (1, 3)
    assert list(stability.unsteady(runs)) == ["b train.py:7: 1 of 3 runs, high end 4 to 6 %"]


def test_ends_are_compared_with_the_mean_width(stability: Any) -> None:
    runs = [run(stability, ("a", *ends)) for ends in ((10, 20), (12, 26))]
    ((far, width),) = stability.moved(runs)
    assert far == pytest.approx(0.06)
    assert width == pytest.approx(0.12)


def test_a_run_that_failed_is_none_and_the_same_seed_draws_the_same(stability: Any) -> None:
    assert stability.of_report({"failed": "no step"}) is None
    names = [case.name for case in stability.drawn(1, 5)]
    assert names == [case.name for case in stability.drawn(1, 5)]
    assert len(set(names)) == 5
