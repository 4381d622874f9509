"""Processes that train side by side without a process group: one stands for all, and never beside the script itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capture_runs import SCRIPTS, capture

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_one_of_the_children_is_recorded(tmp_path: Path, how: str) -> None:
    done = capture(tmp_path / "out", SCRIPTS / "side_by_side.py", how)
    assert done.status == 0, done.err
    assert json.loads(done.out.splitlines()[-1]) == {"codes": [0, 0]}
    steps = done.rank["steps"]
    # The passes before it was chosen are not known; each has an optimizer step.
    assert steps["source"] == "optimizer"
    assert 40 < steps["count"] < 60
    assert len(done.step_rows()) > 0
    assert any("side by side" in note for note in done.rank["notes"])
    assert not list(done.folder.glob("*.claim"))


def test_children_of_a_script_that_trains_are_not(tmp_path: Path) -> None:
    done = capture(tmp_path / "out", SCRIPTS / "side_by_side.py", "spawn", "also")
    assert done.status == 0, done.err
    assert (done.rank["steps"]["count"], done.rank["notes"]) == (60, [])


def test_workers_of_a_loader_are_not_whatever_they_compute(tmp_path: Path) -> None:
    done = capture(tmp_path / "out", SCRIPTS / "side_by_side.py", "read")
    assert done.status == 0, done.err
    assert not any(file["role"] == "profile" for rank in done.record["ranks"] for file in rank["files"])
    assert not any(rank["notes"] for rank in done.record["ranks"])
