"""A script that runs out of memory ends as without us, and its record names the line and what held memory."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from capture_runs import advised, bare, capture
from tiers import complete

from advisor.capture.record import HeldVariable, OutOfMemory
from advisor.report.memory_end import sentence

_LOOP = """
import resource, sys, torch
from torch import nn
model = nn.Linear(256, 64)
optimizer = torch.optim.Adam(model.parameters())
kept = []

def train(steps):
    for number in range(80):
        batch = torch.randn(128, 256)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        kept.append(batch)
        if number == steps:
            fail()

def fail():
    {fail}

train({steps})
"""
_BATCH_BYTES, _WEIGHTS_BYTES = 128 * 256 * 4, (256 * 64 + 64) * 4
_RAISED = 'raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has ...")'
_LIMITED = """
    taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (400 << 20), resource.RLIM_INFINITY))
    more = []
    while True:
        more.append(torch.ones(16 << 20))
"""


def _script(folder: Path, fail: str, steps: int) -> Path:
    path = folder / "train.py"
    path.write_text(_LOOP.format(fail=fail.strip(), steps=steps))
    return path


def _line(path: Path, words: str) -> int:
    return next(at for at, line in enumerate(path.read_text().splitlines(), 1) if words in line)


def test_an_error_of_torchs_allocator_is_recorded_with_its_line(tmp_path: Path) -> None:
    path = _script(tmp_path, _RAISED, 60)
    found = capture(tmp_path / "out", path, cwd=tmp_path)
    end = found.rank["out_of_memory"]
    assert found.status == 1
    assert (end["file"], end["line"], end["function"]) == ("train.py", _line(path, "raise torch"), "fail")
    assert end["tried_bytes"] == 5 << 29
    assert (end["weights_bytes"], end["gradients_bytes"]) == (_WEIGHTS_BYTES, _WEIGHTS_BYTES)
    # Two moments of each weight, and two counts of steps.
    assert end["state_bytes"] == 2 * _WEIGHTS_BYTES + 2 * 4
    held = {one["name"]: one["bytes"] for one in end["variables"]}
    assert held == {"kept": 60 * _BATCH_BYTES, "batch": _BATCH_BYTES}
    assert found.step_rows()  # the steps that were profiled before are kept


@pytest.mark.complete
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are Linux's")
def test_a_limit_of_the_system_that_is_met(tmp_path: Path) -> None:
    path = _script(tmp_path, _LIMITED, 60)
    found = capture(tmp_path / "out", path, cwd=tmp_path)
    end = found.rank["out_of_memory"]
    assert found.status == 1
    assert (end["line"], end["function"], end["device"]) == (_line(path, "more.append"), "fail", "cpu")
    assert end["tried_bytes"] == 64 << 20
    more = next(one["bytes"] for one in end["variables"] if one["name"] == "more")
    assert more % (64 << 20) == 0
    assert 0 < more <= 400 << 20
    assert end["resident_bytes"] > more


@pytest.mark.complete
def test_the_script_prints_and_ends_as_without_us(tmp_path: Path) -> None:
    path = _script(tmp_path, _RAISED, 60)
    without = bare(sys.executable, path.name, cwd=tmp_path)
    done = advised("--no-calibrate", path.name, cwd=tmp_path)
    assert done.status == without.status == 1
    assert done.err.startswith(without.err)
    said = re.sub(r"\s+", " ", done.out.decode() + done.err.decode())
    assert "the script ran out of host memory at train.py:" in said
    report = json.loads((tmp_path / "advisor-report" / "report.json").read_text())
    assert ("out-of-memory", "warning") in [(one["id"], one["status"]) for one in report["health"]]


@pytest.mark.complete
def test_before_anything_was_profiled_the_line_is_said(tmp_path: Path) -> None:
    done = advised("--no-calibrate", _script(tmp_path, _RAISED, 2).name, cwd=tmp_path)
    assert done.status == 1
    assert "nothing was profiled: the script ran out of host memory at train.py:" in done.err.decode()


@pytest.mark.parametrize(
    "fail",
    [*complete("raise ValueError('out of memory')", "sys.exit(3)"), "raise RuntimeError('shapes differ')"],
)
def test_other_ends_are_none_of_this(fail: str, tmp_path: Path) -> None:
    assert capture(tmp_path / "out", _script(tmp_path, fail, 60), cwd=tmp_path).rank["out_of_memory"] is None


@pytest.mark.complete
def test_an_error_that_the_script_handles_is_no_end(tmp_path: Path) -> None:
    handled = "try:\n        raise MemoryError\n    except MemoryError:\n        pass"
    found = capture(tmp_path / "out", _script(tmp_path, handled, 60), cwd=tmp_path)
    assert (found.status, found.rank["out_of_memory"]) == (0, None)


def test_the_sentence_says_what_is_known() -> None:
    end = OutOfMemory(
        *(1200, "cuda", 2_000_000_000, "t.py", 31, "train", 5 << 30, 14_100_000_000, 15_000_000_000),
        *(1_000_000_000, None, 0, [HeldVariable("losses", "main", 6_000_000)]),
    )
    assert sentence(end) == (
        "the script ran out of GPU memory at t.py:31 in train after 1,200 steps, when it requested 2 GB; "
        "tensors on the GPU held 14.1 GB (15 GB reserved), including weights 1 GB, `losses` in main 6 MB"
    )
    assert sentence(OutOfMemory()) == "the script ran out of host memory"
