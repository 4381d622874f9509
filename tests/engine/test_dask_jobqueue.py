"""The recipe of docs/ranks.md for dask-jobqueue, with a stand-in for Slurm that starts each job on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kineto_files.dialects as made
import pytest

from advisor.cli import main

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
pytestmark = pytest.mark.complete
PAGE = Path(__file__).parents[2] / "docs" / "ranks.md"
SBATCH = """#!/bin/sh
cp "$1" "{folder}/job-$$.sh"
setsid sh "{folder}/job-$$.sh" >"{folder}/job-$$.log" 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
for job in "$@"; do kill -- "-$job"; done
"""


def recipe() -> str:
    """The Python block of the page; two jobs are enough here, and this process ends them when its input is closed."""
    [block] = re.findall(r"```python\n(from dask_jobqueue.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    text, count = re.subn(r"jobs=\d+", "jobs=2", block)
    assert count == 1
    lines = [*text.rstrip().splitlines(), "import sys", "sys.stdout.flush()", "sys.stdin.read()", "cluster.close()"]
    return "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in lines)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address that the recipe prints."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (programs / name).write_text(text.format(folder=tmp_path))
        (programs / name).chmod(0o755)
    (tmp_path / "cluster.py").write_text(recipe())
    process = subprocess.Popen(
        [sys.executable, "cluster.py"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(60)


def test_workers_that_slurm_starts_give_the_same_report(
    scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    for rank in range(3):
        head = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 3}}
        (traces / f"t{rank}.json").write_text(made.text(made.rows(6), head))
    said = []
    for words in (["--scheduler", scheduler], []):
        assert main(["analyze", str(traces), "--format", "json", "-q", *words]) == 0, capsys.readouterr().err
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert sorted(path.suffix for path in tmp_path.glob("job-*")) == [".log", ".log", ".sh", ".sh"]
    assert any("Receive" in log.read_text() or "Registered" in log.read_text() for log in tmp_path.glob("job-*.log"))
