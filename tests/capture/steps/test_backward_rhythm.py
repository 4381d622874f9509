"""Steps of loops that update their weights by hand: the rhythm of their backward passes, and only where it is all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from capture_runs import SCRIPTS, Captured, capture
from tiers import complete

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def loop(tmp_path: Path, name: str) -> tuple[Captured, dict[str, Any], dict[str, int]]:
    """A loop of scripts/by_hand.py under capture, its steps, and what it says it did."""
    done = capture(tmp_path / "out", SCRIPTS / "by_hand.py", name)
    assert done.status == 0, done.err
    assert done.rank["notes"] == []
    return done, done.rank["steps"], json.loads(done.out.splitlines()[-1])


@pytest.mark.parametrize(("name", "passes"), [("plain", 1), *complete(("two_losses", 3), ("checked", 1))])
def test_steps_begin_with_the_backward_pass_of_one_line(tmp_path: Path, name: str, passes: int) -> None:
    done, steps, did = loop(tmp_path, name)
    assert (steps["source"], steps["count"]) == ("backward", did["iterations"])
    assert steps["optimizer_steps"] == 0
    assert steps["unprofiled_us"]
    rows, events = done.step_rows(), done.events()
    assert len(rows) == len(steps["profiled_us"]) > 0
    ends = [one["ts"] for one in events if one["name"].startswith("autograd::engine::evaluate_function: Tanh")]
    for row in rows:
        assert sum(row["ts"] <= ts < row["ts"] + row["dur"] for ts in ends) == passes
    assert {file["role"] for file in done.rank["files"]} == {"profile", "lines"}


@pytest.mark.complete
@pytest.mark.parametrize(("name", "source"), [("warmed_up", "optimizer"), *complete(("fed_later", "loader"))])
def test_an_optimizer_or_a_loader_that_comes_later_takes_over(tmp_path: Path, name: str, source: str) -> None:
    _, steps, did = loop(tmp_path, name)
    assert (steps["source"], steps["count"]) == (source, did["iterations"])


@pytest.mark.complete
def test_passes_over_parts_of_a_batch_are_no_steps(tmp_path: Path) -> None:
    """Twelve passes for one update: an optimizer is alive, so its steps are waited for."""
    _, steps, did = loop(tmp_path, "accumulated")
    assert (steps["source"], steps["count"]) == ("optimizer", did["iterations"])


@pytest.mark.complete
def test_fewer_passes_than_tell_a_rhythm(tmp_path: Path) -> None:
    _, steps, _ = loop(tmp_path, "few")
    assert (steps["source"], steps["count"]) == ("window", 0)
