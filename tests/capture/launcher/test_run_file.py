"""run.json stays small whatever a script does: what does not fit is left out and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiers import complete

from advisor.capture.launcher import run_file
from advisor.capture.record import read


def rank(number: int = 0, **facts: Any) -> dict[str, Any]:
    """A rank's record as capture writes it, with what every rank has."""
    return {"rank": number, "world_size": 1, "pid": 7 + number, "files": [], "notes": [], **facts}


def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path) -> None:
    """The least needed goes first: modules before step times."""
    modules = [{"path": f"layer.{at}", "kind": "Linear", "parameters": at} for at in range(50_000)]
    model = {"parameters": 5, "modules": modules}
    run_file.write(tmp_path, {"ranks": [rank(model=model, steps={"unprofiled_us": [1.5] * 500})]})
    assert (tmp_path / "run.json").stat().st_size <= run_file.MOST_BYTES
    [found] = read(tmp_path / "run.json").ranks
    assert found.model == {"parameters": 5}
    assert found.steps.unprofiled_us == [1.5] * 500
    assert "run.json is kept below 2 MB: the modules of the model were omitted" in found.notes


def test_models_of_later_windows_go_before_their_step_times(tmp_path: Path) -> None:
    later = [
        {"at": at, "why": "elsewhere", "model": {"x": "y" * 800_000}, "vitals": {"windows": 1}} for at in (1, 2, 3)
    ]
    run_file.write(tmp_path, {"ranks": [rank(later=later, vitals={"windows": 2})]})
    [found] = read(tmp_path / "run.json").ranks
    assert [(one.at, one.model, one.vitals is None) for one in found.later] == [(at, None, False) for at in (1, 2, 3)]
    assert found.vitals is not None
    assert "run.json is kept below 2 MB: the models of later windows were omitted" in found.notes


@pytest.mark.parametrize(("ranks", "each"), [(1, 3_000_000), (400, 10_000), *complete((30_000, 0))])
def test_never_more_than_two_megabytes(tmp_path: Path, ranks: int, each: int) -> None:
    """Of anything, and of any number of ranks: what names the traces stays for as many ranks as fit."""
    files = [{"path": "trace.gz", "role": "profile"}]
    run_file.write(tmp_path, {"ranks": [rank(at, files=files, saves="x" * each) for at in range(ranks)]})
    assert (tmp_path / "run.json").stat().st_size <= run_file.MOST_BYTES
    kept = json.loads((tmp_path / "run.json").read_text())["ranks"]
    assert kept[0]["files"] == files
    assert "run.json is kept below 2 MB" in kept[0]["notes"][-1]
    assert len(kept) == min(ranks, 7_500)


def test_a_list_of_numbers_stands_on_one_line(tmp_path: Path) -> None:
    """run.json is read by people, too."""
    record = {"ranks": [rank(steps={"unprofiled_us": [1.0, 2.0]}, loaders=[{"batch_size": 4}], warnings=[])]}
    run_file.write(tmp_path, record)
    text = (tmp_path / "run.json").read_text()
    assert json.loads(text) == record
    assert '    "unprofiled_us": [1.0, 2.0]\n' in text
