"""Two real ranks, one of them late on purpose: found by `advisor run`, with its cause and its line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from capture_runs import SCRIPTS, advised

from advisor.cli import main

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.complete]  # torchrun starts three interpreters

SCRIPT = SCRIPTS / "late_rank.py"


def findings(how: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What the report says of two ranks: rule -> findings."""
    words = ("--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = advised("--quiet", "--output", str(folder), *words, str(SCRIPT), how, cwd=folder.parent)
    assert done.status == 0, done.err
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert not [one for one in report["outcomes"] if one["status"] == "error"]
    assert len(report["ranks"]) == 2
    return {one["rule"]: one["findings"] for one in report["outcomes"]}


def test_a_rank_that_sleeps_is_named_with_its_line(tmp_path: Path) -> None:
    found = findings("sleep", tmp_path / "out")
    late = found["straggling-rank"][0]
    assert late["ranks"] == [1]
    assert late["facts"]["cause"] == "host"
    lines = SCRIPT.read_text("utf-8").splitlines()
    assert "time.sleep(0.05)" in lines[late["where"][0]["line"] - 1]
    assert found["unequal-batches"] == []


def test_what_the_run_leaves_of_each_rank_says_the_same_without_its_traces(tmp_path: Path) -> None:
    findings("sleep", tmp_path / "out")
    small = tmp_path / "small"
    small.mkdir()
    for path in (tmp_path / "out").glob("rank*.rank"):
        shutil.copy(path, small)
    assert len(list(small.iterdir())) == 2
    texts = []
    for folder, *more in ((tmp_path / "out",), (small,), (small, tmp_path / "out" / "run.json")):
        for path in more:
            shutil.copy(path, folder)
        target = tmp_path / f"{len(texts)}.json"
        assert main(["analyze", str(folder), "-q", "--output", str(target)]) == 0
        texts.append(target.read_text("utf-8"))
    assert texts[0] == texts[1] == texts[2]


def test_longer_batches_are_told_from_a_slow_rank(tmp_path: Path) -> None:
    found = findings("data", tmp_path / "out")
    unequal = found["unequal-batches"]
    assert any("on rank 1" in finding["message"] for finding in unequal)
    by_rank = next(finding["facts"]["flops_by_rank"] for finding in unequal if "flops_by_rank" in finding["facts"])
    assert by_rank["1"] == 8 * by_rank["0"]
    # Each rank has a data set of its own length here.
    assert any("81,920" in finding["message"] for finding in unequal)
    assert found["straggling-rank"] == []
