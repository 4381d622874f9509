"""run.json stays small whatever a script does: what ops read lies beside it, what does not fit is left out and said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from advisor.capture.launcher import run_file
from advisor.capture.record import read


def rank(number: int = 0, **facts: Any) -> dict[str, Any]:
    """A rank's record as capture writes it, with what every rank has."""
    return {"rank": number, "world_size": 1, "pid": 7 + number, "files": [], "notes": [], **facts}


def dataflow(ops: int) -> dict[str, Any]:
    """An observed step whose every op waits for the two before it."""
    return {
        "names": ["aten::add", "aten::mul"],
        "ops": [at % 2 for at in range(ops)],
        "again": [[5, 3]],
        "unread": [[4, 5, 0.25]],
        "waits": [[2, 1] if at > 1 else [] for at in range(ops)],
        "features": {"ops": [1, 2], "samples": 8, "kept_bytes": 4, "read_bytes": 4, "layers": 1},
    }


@pytest.mark.parametrize(("ops", "files"), [(10, []), (50_000, ["dataflow-rank0-7.gz"])])
def test_what_ops_read_lies_beside_a_small_run_json(tmp_path: Path, ops: int, files: list[str]) -> None:
    """Read again it is what it was, in run.json or in a file of its own; the record that was given stays as it was."""
    known = dataflow(ops)
    record = {"schema": "torch-advisor/run", "version": 1, "ranks": [rank(reused=known)]}
    run_file.write(tmp_path, record)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*files, "run.json"]
    assert (tmp_path / "run.json").stat().st_size < 10_000
    assert record["ranks"][0]["reused"] is known
    found = read(tmp_path / "run.json").ranks[0].reused
    assert found is not None
    assert (found.names, found.ops, found.waits) == (known["names"], known["ops"], known["waits"])
    assert (found.again, found.unread, found.waits_backs) == ([(5, 3)], [(4, 5, 0.25)], [])
    assert found.features is not None
    assert found.features.ops == [1, 2]


@pytest.mark.parametrize(
    "content",
    [None, b"", b"no gzip", gzip.compress(b"{")[:-4], gzip.compress(b'{"ops": "x"}')],
    ids=["missing", "empty", "no gzip", "cut", "of another kind"],
)
def test_a_damaged_file_costs_what_it_holds(tmp_path: Path, content: bytes | None) -> None:
    """The rest of the record is read; who needs what the file held is told why it is missing."""
    run_file.write(tmp_path, {"ranks": [rank(reused=dataflow(50_000))]})
    (tmp_path / "dataflow-rank0-7.gz").unlink()
    if content is not None:
        (tmp_path / "dataflow-rank0-7.gz").write_bytes(content)
    [found] = read(tmp_path / "run.json").ranks
    assert found.pid == 7
    assert found.reused is not None
    assert found.reused.why.startswith("dataflow-rank0-7.gz")
    assert found.reused.ops == []


def test_a_name_leads_nowhere_else(tmp_path: Path) -> None:
    """A run.json from elsewhere names a file outside of its folder: that is not read."""
    (tmp_path / "other.gz").write_bytes(gzip.compress(b'{"ops": [1]}'))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"ranks": [{"reused": {"file": "../other.gz"}}]}))
    [found] = read(tmp_path / "run" / "run.json").ranks
    assert found.reused is not None
    assert (found.reused.ops, bool(found.reused.why)) == ([], True)


def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path) -> None:
    """The least needed goes first: modules before step times."""
    modules = [{"path": f"layer.{at}", "kind": "Linear", "parameters": at} for at in range(50_000)]
    model = {"parameters": 5, "modules": modules}
    run_file.write(tmp_path, {"ranks": [rank(model=model, steps={"unprofiled_us": [1.5] * 500})]})
    assert (tmp_path / "run.json").stat().st_size <= run_file.MOST_BYTES
    [found] = read(tmp_path / "run.json").ranks
    assert found.model == {"parameters": 5}
    assert found.steps.unprofiled_us == [1.5] * 500
    assert "run.json is kept below 2 MB: the modules of the model were left out" in found.notes


@pytest.mark.parametrize(("ranks", "each"), [(1, 3_000_000), (400, 10_000), (30_000, 0)])
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
