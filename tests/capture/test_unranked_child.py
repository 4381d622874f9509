"""Processes that train side by side without a process group: one stands for all, and never beside the script itself."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from capture_runs import SCRIPTS, advised, bare, capture
from tiers import complete

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("how", ["fork", *complete("spawn", "forkserver")])
def test_one_of_the_children_is_recorded(tmp_path: Path, how: str) -> None:
    done = capture(tmp_path / "out", SCRIPTS / "side_by_side.py", how)
    assert done.status == 0, done.err
    assert json.loads(done.out.splitlines()[-1]) == {"codes": [0, 0]}
    steps = done.rank["steps"]
    # The passes before it was chosen are not known; each has an optimizer step.
    assert steps["source"] == "optimizer"
    assert 40 < steps["count"] < 60
    assert len(done.step_rows()) > 0
    assert any("train in parallel" in note for note in done.rank["notes"])
    assert not list(done.folder.glob("*.claim"))


@pytest.mark.complete
@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_children_of_a_script_that_trains_are_not(tmp_path: Path, how: str) -> None:
    done = capture(tmp_path / "out", SCRIPTS / "side_by_side.py", how, "also")
    assert done.status == 0, done.err
    assert (done.rank["steps"]["count"], done.rank["notes"]) == (60, [])


@pytest.mark.complete
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "preloaded"])
def test_workers_of_a_loader_are_not_whatever_they_compute(tmp_path: Path, how: str) -> None:
    done = capture(tmp_path / "out", SCRIPTS / "side_by_side.py", "read", how)
    assert done.status == 0, done.err
    assert not any(file["role"] == "profile" for rank in done.record["ranks"] for file in rank["files"])
    assert not any(rank["notes"] for rank in done.record["ranks"])


@pytest.mark.parametrize(
    ("what", "ahead", "status"),
    [
        *complete(("train", "torch", 0)),
        *complete(("train", "nothing", 0), ("train", "script", 0), ("fail", "script", 1)),
        *complete(("leave", "nothing", 3), ("nested", "torch", 0)),
    ],
)
def test_a_child_of_the_fork_server_is_recorded(tmp_path: Path, what: str, ahead: str, status: int) -> None:
    """No sitecustomize runs in it, and it ends without atexit; what the server has loaded before makes no difference.

    Output, traceback and status as bare.
    """
    shutil.copy(SCRIPTS / "from_fork_server.py", tmp_path)
    plain = bare(sys.executable, "from_fork_server.py", what, ahead, cwd=tmp_path)
    wrapped = advised("--quiet", "from_fork_server.py", what, ahead, cwd=tmp_path)
    assert (wrapped.status, wrapped.out, wrapped.err) == (plain.status, plain.out, plain.err)
    assert plain.status == status
    (rank,) = json.loads((tmp_path / "advisor-report" / "run.json").read_text())["ranks"]
    assert {file["role"] for file in rank["files"]} == {"profile", "lines"}
    assert (rank["steps"]["source"], rank["vitals"]["ended"]) == ("optimizer", True)
    assert 40 < rank["steps"]["count"] < 60
    assert any("train in parallel" in note for note in rank["notes"])


@pytest.mark.complete
@pytest.mark.parametrize("ahead", ["nothing", "script"])
def test_a_child_of_the_fork_server_that_trains_nothing_is_not(tmp_path: Path, ahead: str) -> None:
    shutil.copy(SCRIPTS / "from_fork_server.py", tmp_path)
    plain = bare(sys.executable, "from_fork_server.py", "work", ahead, cwd=tmp_path)
    wrapped = advised("from_fork_server.py", "work", ahead, cwd=tmp_path)
    assert (wrapped.status, wrapped.out) == (plain.status, plain.out) == (0, b"6\n")
    assert wrapped.err.startswith(b"advisor: nothing was profiled: no training step was detected")
    assert not (tmp_path / "advisor-report").exists()
