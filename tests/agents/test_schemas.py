"""Schemas describe what is really written: reports, records, the gate's results, reduced forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reports_fixtures as fixtures
from capture_runs import capture
from written_files import faults as faults_below
from written_files import plain, printed

from advisor.agents import schemas
from advisor.api import NEXT, draw
from advisor.cli import main
from advisor.engine import reduced_form
from advisor.report.report_file import encode

jsonschema = pytest.importorskip("jsonschema", reason="the extra `test` has it")
ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.json"))
TRAINING = """
import torch
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(160, 8))
for (x,) in torch.utils.data.DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
DRAWN = """
    step   [1          ][2          ][3          ]
    cpu    [D  ][F ][B ][D  ][F ][B ][D  ][F ][B ]
    """


def faults(name: str, document: Any) -> list[str]:
    """What a document has that its schema forbids."""
    return [error.message for error in jsonschema.Draft202012Validator(schemas.schema(name)).iter_errors(document)]


def written_gates(folder: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    for name in ("canonical", "on_cpu"):
        (folder / f"{name}.json").write_bytes(encode(fixtures.REPORTS[name]()))
    for base, head in (("canonical", "canonical"), ("canonical", "on_cpu"), ("on_cpu", "canonical")):
        main(["gate", str(folder / f"{base}.json"), str(folder / f"{head}.json"), "--format", "json"])
        yield json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", schemas.names())
def test_the_files_are_current(name: str, request: pytest.FixtureRequest) -> None:
    path = SCHEMAS / f"{name}.schema.json"
    if request.config.getoption("--renew"):
        path.write_text(schemas.as_text(name), "utf-8", newline="\n")
    assert path.read_text("utf-8") == schemas.as_text(name), "run pytest --renew and review the diff"
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text("utf-8")))


def test_no_file_is_left_of_a_schema_that_went() -> None:
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.schema.json" for name in schemas.names()}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden_reports_are_valid(path: Path) -> None:
    assert faults("report", json.loads(path.read_text("utf-8"))) == []


@pytest.mark.parametrize("name", sorted(fixtures.REPORTS))
def test_every_kind_of_report_is_valid(name: str) -> None:
    assert faults("report", json.loads(encode(fixtures.REPORTS[name]()))) == []


def test_what_is_wrong_is_found() -> None:
    report = json.loads(encode(fixtures.canonical()))
    report["steps"]["count"] = "five"
    del report["breakdown"]
    assert len(faults("report", report)) == 2
    assert faults("gate", {"verdict": "maybe"})
    assert faults("run", {"ranks": [{"rank": "first"}]})


def test_what_tests_leave_behind_is_looked_through(tmp_path: Path) -> None:
    report = json.loads(encode(fixtures.canonical()))
    for name in ("right", "wrong", "made_up"):
        (tmp_path / name).mkdir()
    (tmp_path / "right" / "report.json").write_text(json.dumps(report))
    report["steps"]["count"] = "five"
    (tmp_path / "wrong" / "report.json").write_text(json.dumps(report))
    (tmp_path / "made_up" / "report.json").write_text("{}")
    try:
        [fault] = faults_below(tmp_path)
        assert fault.startswith("wrong/report.json: not a valid report: steps.count: 'five' is not of type")
    finally:
        (tmp_path / "wrong" / "report.json").unlink()


@pytest.mark.torch
def test_the_record_of_a_real_run_is_valid(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINING)
    captured = capture(tmp_path / "out", tmp_path / "train.py")
    assert captured.rank["optimizers"]
    assert faults("run", captured.record) == []


def test_what_the_gate_and_compare_print_is_heard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        said = printed(patch)
        shown = list(written_gates(tmp_path, capsys))
        main(["compare", str(tmp_path / "canonical.json"), str(tmp_path / "on_cpu.json"), "--format", "json"])
    assert [name for name, _ in said] == ["gate"] * len(shown) + ["compare"]
    assert [json.loads(text) for name, text in said if name == "gate"] == shown


def test_results_of_the_gate_are_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = list(written_gates(tmp_path, capsys))
    assert len({one["verdict"] for one in results}) > 1
    assert [faults("gate", one) for one in results] == [[], [], []]


def test_a_comparison_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list(written_gates(tmp_path, capsys))
    assert main(["compare", str(tmp_path / "canonical.json"), str(tmp_path / "on_cpu.json"), "--format", "json"]) == 0
    assert faults("compare", json.loads(capsys.readouterr().out)) == []


def test_a_reduced_form_is_valid(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(dict(draw(DRAWN, us=1000, world_size=2, D=NEXT))))
    assert main(["reduce", str(trace), "-o", str(tmp_path / "reduced"), "-q"]) == 0
    (file,) = (tmp_path / "reduced").glob("*.rank")
    first, second = reduced_form.unpacked_pieces(file.read_bytes(), file)
    assert faults("reduced", plain(first)) == []
    assert faults("reduced-detail", plain(second)) == []
    assert faults("reduced-detail", plain(first))


def test_the_command_prints_names_and_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert tuple(capsys.readouterr().out.split()) == schemas.names()
    assert main(["schema", "report"]) == 0
    assert capsys.readouterr().out == schemas.as_text("report")
    assert main(["schema", "reprot"]) == 2
    assert re.search(r"did you mean 'report'", capsys.readouterr().err)
