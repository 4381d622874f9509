"""The gate's working trees of two commits, and how lines of one are found in the other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from advisor import cli
from advisor.errors import UsageError
from advisor.gate import trees
from advisor.gate.moved_lines import changed_lines
from advisor.model import OpRow, Report, RunInfo, StepsSummary


def git(folder: Path, *words: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}  # fmt: skip
    return subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a commit, then a change, a new file and ignored data."""
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "src" / "train.py").write_text("before\n")
    (root / "gone.py").write_text("x\n")
    (root / ".gitignore").write_text("data/\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    (root / "src" / "train.py").write_text("after\n")
    (root / "src" / "new.py").write_text("new\n")
    (root / "gone.py").unlink()
    (root / "data").mkdir()
    (root / "data" / "set.bin").write_text("1")
    monkeypatch.chdir(root / "src")
    return root


def test_trees_hold_the_commit_and_the_working_tree_and_vanish(repository: Path) -> None:
    before = git(repository, "status", "--porcelain")
    with trees.trees("main", None, ["data"]) as both:
        assert (both.base / "train.py").read_text() == "before\n"
        assert (both.head / "train.py").read_text() == "after\n"
        assert not (both.base / "new.py").exists()
        assert (both.head / "new.py").read_text() == "new\n"
        assert (both.base.parent / "gone.py").exists()
        assert not (both.head.parent / "gone.py").exists()
        assert (both.base.parent / "data" / "set.bin").read_text() == "1"
        (both.head / "train.py").write_text("scribble\n")
        assert git(repository, "status", "--porcelain") == before
        places = both.base, both.head
    assert (repository / "src" / "train.py").read_text() == "after\n"
    assert (repository / "data" / "set.bin").exists()
    assert not any(place.exists() for place in places)
    assert git(repository, "worktree", "list").count("\n") == 1
    assert git(repository, "status", "--porcelain") == before


def test_an_unknown_ref_is_a_usage_error(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gate", "--base", "no-such-branch", "--", "train.py"]) == 2
    err = capsys.readouterr().err
    assert "unknown ref 'no-such-branch'" in err
    assert err.count("\n") == 1
    with pytest.raises(UsageError, match="no nothing in repo"), trees.trees("main", None, ["nothing"]):
        pass
    assert git(repository, "worktree", "list").count("\n") == 1


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="needs a git repository"), trees.trees("main", None, []):
        pass


def test_packages_installed_editable_are_found_in_each_tree(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository / "src"))
    with trees.trees("main", None, []) as both:
        assert both.python_path(both.base.parent) == [str(both.base)]


def test_lines_are_matched_through_the_change(tmp_path: Path) -> None:
    def report(*lines: tuple[str, float]) -> Report:
        rows = tuple(OpRow(name, "line", us, 1.0, 0.1) for name, us in lines)
        return Report(RunInfo(), (), StepsSummary(), {}, (), (), lines=rows)

    for side, text in (("base", "a\nb\nc\nd\n"), ("head", "a\nnew\nb\nc\n")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "train.py").write_text(text)
    base = report(("train.py:2 step", 100.0), ("train.py:3 step", 500.0), ("train.py:4 step", 80.0))
    head = report(("train.py:2 step", 300.0), ("train.py:3 step", 101.0), ("train.py:4 step", 700.0))
    causes = changed_lines(base, head, tmp_path / "base", tmp_path / "head", 1000.0)
    assert [(cause.name, round(cause.change)) for cause in causes] == [
        ("train.py:2 step (new)", 300),
        ("train.py:4 step", 200),
        ("train.py:4 step (gone)", -80),
    ]
    assert [cause.where for cause in causes] == ["train.py:2", "train.py:4", ""]
