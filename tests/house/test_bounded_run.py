"""A bounded run of the tests skips what comes too late, and leaves other files out next time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bounded_run import WHY, drawn

ROOT = Path(__file__).parents[2]
FILE = "tests/house/test_bounded_run.py::test_each_commit_draws_another_order"


@pytest.mark.parametrize(("minutes", "says"), [("0", "1 skipped"), ("60", "1 passed")])
def test_what_comes_too_late_is_skipped_and_said(minutes: str, says: str) -> None:
    command = [sys.executable, "-m", "pytest", "-n0", "-rs", "--minutes", minutes, FILE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert says in done.stdout
    assert (WHY in done.stdout) == (minutes == "0")


def test_each_commit_draws_another_order() -> None:
    files = [f"test_{number}.py" for number in range(20)]
    orders = {tuple(sorted(files, key=lambda file: drawn(commit, file))) for commit in ("a", "b", "c", "d")}
    assert len(orders) == 4
    assert tuple(sorted(files, key=lambda file: drawn("a", file))) in orders
