"""The report's folder, while another run takes its name."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.capture.launcher.publish import Publisher
from advisor.capture.record import read
from advisor.commands import analyze, run
from advisor.errors import AdvisorError
from advisor.inputs.output import claim_folder


@dataclass(frozen=True)
class Output:
    folder: Path


def test_a_folder_that_is_moved_while_it_is_read_is_read_where_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, home = tmp_path / "ours", tmp_path / "advisor-report"
    ours.mkdir()
    (ours / "trace-rank0-1.json").write_text("{}")
    seen: list[Path] = []

    def finish(folder: Path, output: Output, _args: argparse.Namespace) -> int:
        if not seen:
            claim_folder(home)  # another run, at this very moment
        seen.append(output.folder)
        if not (folder / "trace-rank0-1.json").exists():
            raise AdvisorError("cannot be read")
        return 0

    monkeypatch.setattr(analyze, "finish", finish)
    publisher = Publisher(ours, {}, lambda: claim_folder(home), lambda _home: None)
    assert run._at_home(publisher, Output(home), argparse.Namespace()) == 0  # type: ignore[arg-type]
    assert seen == [home, tmp_path / "advisor-report.1"]


def test_a_folder_that_lies_where_it_was_fails_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, home = tmp_path / "ours", tmp_path / "advisor-report"
    ours.mkdir()
    seen: list[Path] = []

    def finish(folder: Path, _output: Output, _args: argparse.Namespace) -> int:
        seen.append(folder)
        raise AdvisorError("damaged")

    monkeypatch.setattr(analyze, "finish", finish)
    publisher = Publisher(ours, {}, lambda: claim_folder(home), lambda _home: None)
    with pytest.raises(AdvisorError, match="damaged"):
        run._at_home(publisher, Output(home), argparse.Namespace())  # type: ignore[arg-type]
    assert seen == [home]


def test_what_ops_read_is_published_with_the_traces(tmp_path: Path) -> None:
    """While the script runs; where it is gone in the end, it goes from the report's folder, too."""
    ours, home = tmp_path / "ours", tmp_path / "advisor-report"
    ours.mkdir()
    (ours / "trace-rank0-1.json").write_text("{}")
    (ours / "dataflow-rank0-1.gz").write_bytes(b"ops")
    part = {"rank": 0, "pid": 1, "files": [{"path": "trace-rank0-1.json", "role": "profile"}]}
    (ours / "1.part.json").write_text(json.dumps({**part, "dataflow": {"file": "dataflow-rank0-1.gz"}}))
    publisher = Publisher(ours, {}, lambda: claim_folder(home), lambda _home: None, wait_s=0.0)
    publisher.look()
    assert (home / "dataflow-rank0-1.gz").read_bytes() == b"ops"
    [rank] = read(home / "run.json").ranks
    assert rank.dataflow is not None
    assert rank.dataflow.file == str(home / "dataflow-rank0-1.gz")
    (ours / "dataflow-rank0-1.gz").unlink()
    publisher.bring_home()
    assert not (home / "dataflow-rank0-1.gz").exists()
