"""Whether a script is still the one of a report, or of the pairs before: by digests, by names, by files of modules."""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from advisor import cli
from advisor.errors import AdvisorError
from advisor.fixing.profiled_files import ProfiledFiles
from advisor.gate import pairs
from advisor.gate.pairs import Layout, Pair, Side, SideFailedError
from advisor.gate.turns import EndedError
from advisor.model import Finding, Fix, Outcome, Report, RunInfo, StepsSummary, Treatment, Trial, Tried
from advisor.places import script_file
from advisor.report.report_file import encode
from advisor.trying.pairing import measurer, of_one_version


def stored(folder: Path, run: RunInfo) -> None:
    """A report with one finding that can be tried."""
    fix = Fix("Set `num_workers=2`", "exact", treatment=Treatment("loader", {"num_workers": 2}))
    outcomes = (Outcome("input-bound", "found", (Finding("The loop waits.", None, fix=fix),)),)
    folder.mkdir()
    (folder / "report.json").write_bytes(encode(Report(run, (), StepsSummary(), {}, (), outcomes)))


def test_a_digest_tells_a_changed_file_whatever_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = {name: hashlib.sha256(b"x = 1\n").hexdigest() for name in ("train.py", "model.py", "gone.py")}
    for name in ("train.py", "model.py"):
        (tmp_path / name).write_text("x = 1\n")
        os.utime(tmp_path / name, (4e9, 4e9))  # copied, or checked out again
    stored(tmp_path / "kept", RunInfo(("train.py",), sources=found))

    def session(*_: object) -> tuple[Tried, None]:
        return Tried((Trial("t", "not proven", "", ("input-bound",)),)), None

    monkeypatch.setattr(import_module("advisor.commands.try"), "_session", session)
    assert cli.main(["try", "--report", "kept", "--no-remember"]) == 0
    assert "was changed" not in capsys.readouterr().err
    (tmp_path / "model.py").write_text("x = 2\n")
    os.utime(tmp_path / "model.py", (1e9, 1e9))
    assert cli.main(["try", "--report", "kept", "--no-remember"]) == 0
    said = capsys.readouterr().err
    assert "model.py was changed after this report" in said
    assert "train.py was" not in said


def test_a_module_of_another_report_is_refused_and_its_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lab/train.py", "lab/__main__.py", "train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    stored(tmp_path / "kept", RunInfo(("-m", "lab.train", "--epochs", "3")))
    assert cli.main(["try", "--report", "kept", "-m", "lab.other"]) == 2
    assert "kept is a report of lab.train, not of lab.other" in capsys.readouterr().err
    launched = ("python", "-m", "torch.distributed.run", "--nproc-per-node", "2")
    for words, file in (
        (("python", "-m", "lab.train"), "lab/train.py"),
        (("python", "-m", "lab"), "lab/__main__.py"),
        ((*launched, "-m", "lab.train"), "lab/train.py"),
        ((*launched, "train.py"), "train.py"),
    ):
        assert script_file.started(words, tmp_path) == tmp_path / file
    assert script_file.started(("python", "-m", "absent.module"), tmp_path) is None


def test_a_script_that_is_edited_meanwhile_ends_the_session(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("width = 8")
    measured = []

    def measure(*_: object) -> Any:
        measured.append(len(measured))
        if len(measured) == 2:
            model.write_text("width = 9")
        return None

    checked = of_one_version(measure, ProfiledFiles.now([str(model), str(tmp_path / "absent.py")]))
    side = Side("base", ("train.py",), tmp_path, {})
    checked(side, side)
    with pytest.raises(AdvisorError, match=r"model\.py was changed while it was measured"):
        checked(side, side)


def test_processes_that_exclude_each_other_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes, said = [], []

    def measure(base: Side, _head: Side, layout: Layout, *_: object) -> Pair:
        modes.append(layout.mode)
        if layout.mode == "lockstep":
            raise SideFailedError("the base failed", base, EndedError(1, "FileExistsError: 'run'"))
        return Pair(0.0, 0.0, 1.0, 1.0, 20, 1)

    monkeypatch.setattr(pairs, "measure", measure)
    layout = Layout("lockstep", 1, 20, 1)
    side = Side("base", ("train.py",), tmp_path, {})
    other = replace(side, name="head", settings={"treatments": [{"name": "gc", "arguments": {}}]})
    measured = measurer(layout, random.Random(0), said.append)
    for head in (side, other):
        measured(side, head)
    assert modes == ["lockstep", "blocks", "blocks"]
    assert len(said) == 1
    assert "FileExistsError" in said[0]

    def broken(base: Side, head: Side, *_: object) -> Pair:
        raise SideFailedError("the head failed", head, EndedError(1, "TypeError"))

    monkeypatch.setattr(pairs, "measure", broken)
    with pytest.raises(SideFailedError):
        measurer(layout, random.Random(0), said.append)(side, other)
    assert len(said) == 1  # what the change breaks is told as its own
