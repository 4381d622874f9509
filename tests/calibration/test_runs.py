"""Runs carry the calibration of their machine, and none of its troubles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from capture_runs import advised

from advisor.calibration import machine, process
from advisor.capture.launcher import run_file
from advisor.capture.record import Measured
from advisor.commands._captured_record import add_calibration
from advisor.errors import AdvisorError

SCRIPT = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


def recorded(folder: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads((folder / "run.json").read_text("utf-8"))
    return run["ranks"][0]


@pytest.mark.torch
@pytest.mark.complete  # three runs and two calibrations
def test_a_run_measures_its_machine_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT, "utf-8")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ("first", "second"):
        done = advised("--output", name, "train.py", cwd=tmp_path, env=cache)
        assert done.status == 0, done.err
    first, second = (recorded(tmp_path / name)["calibration"] for name in ("first", "second"))
    assert first == second  # to the last digit: it was measured once
    assert first["threads"] == 1  # as the script chose
    assert first["quantities"]["op_call_us"][0] > 0
    assert len(list((tmp_path / "cache" / "torch-advisor").glob("calibration-*.json"))) == 1
    done = advised("--no-calibrate", "--output", "third", "train.py", cwd=tmp_path, env=cache)
    assert done.status == 0, done.err
    assert "calibration" not in recorded(tmp_path / "third")


RANK = {"files": [{"path": "trace.json"}], "settings": {"threads": 3}, "environment": {"OMP_WAIT_POLICY": "passive"}}


def a_record() -> dict[str, Any]:
    return {"versions": {"torch": "2.14.1"}, "ranks": [dict(RANK, devices=[{"name": "H100"}]), dict(RANK)]}


def test_it_runs_as_the_script_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[machine.Machine] = []

    def obtain(python: str, here: machine.Machine) -> tuple[Measured, bool]:
        asked.append(here)
        return Measured(torch="2.14.1", threads=3), True

    monkeypatch.setattr(process, "obtain", obtain)
    record = a_record()
    add_calibration(record, "/env/bin/python", quiet=False)
    (here,) = asked
    assert (here.torch, here.threads, here.device) == ("2.14.1", 3, "H100")
    assert here.switches["OMP_WAIT_POLICY"] == "passive"
    assert [rank["calibration"]["threads"] for rank in record["ranks"]] == [3, 3]
    run_file.write(tmp_path, record)
    assert recorded(tmp_path)["calibration"]["torch"] == "2.14.1"


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (AdvisorError("calibration: not finished within 60 s"), "advisor: calibration: not finished within 60 s\n"),
        (KeyboardInterrupt(), "advisor: calibration: interrupted; using built-in figures\n"),
    ],
)
@pytest.mark.parametrize("quiet", [False, True])
def test_its_failure_is_one_line_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure: BaseException,
    says: str,
    quiet: bool,
) -> None:
    def obtain(python: str, here: machine.Machine) -> tuple[Measured, bool]:
        raise failure

    monkeypatch.setattr(process, "obtain", obtain)
    record = a_record()
    add_calibration(record, "/env/bin/python", quiet=quiet)
    assert capsys.readouterr().err == ("" if quiet else says)
    assert "calibration" not in record["ranks"][0]
