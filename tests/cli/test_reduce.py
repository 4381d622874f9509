"""`advisor reduce`, and `advisor analyze` of many ranks: the same report whatever the way of the data."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.api import GLOO, NEXT, draw
from advisor.cli import main
from advisor.engine.reduced_form import MARK

WORLD = 4


def _drawing(rank: int) -> dict[str, Any]:
    """Three steps of a rank; the batches of the last rank take 8 ms longer, and the others wait for it."""
    late = 8 * (rank == WORLD - 1)
    lanes = ["step   ", "cpu    ", "cpu 2  "]
    for number in range(1, 4):
        lanes[0] += f"[{number:<29}]"
        lanes[1] += f"[D{' ' * late}][F ][B ]".ljust(31)
        lanes[2] += f"[G ]{' ' * late}      [G{' ' * (14 - late)}]".ljust(31)
    text = "\n".join(f"    {lane}" for lane in lanes)
    drawing = dict(draw(text, us=1000, world_size=WORLD, D=NEXT, G=GLOO))
    return {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": WORLD}} | {
        key: value for key, value in drawing.items() if key != "distributedInfo"
    }


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    for rank in range(WORLD):
        with gzip.open(folder / f"t{rank}.pt.trace.json.gz", "wt") as file:
            json.dump(_drawing(rank), file)
    return folder


@pytest.fixture(scope="module")
def reduced(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reduced")
    assert main(["reduce", str(traces), "-o", str(folder), "-q"]) == 0
    return folder


def _report(capsys: pytest.CaptureFixture[str], *words: Path | str) -> str:
    assert main(["analyze", *map(str, words), "--format", "json", "-q"]) == 0
    return capsys.readouterr().out


def _said(text: str) -> dict[str, str]:
    return {one["id"]: one["message"] for one in json.loads(text)["health"]}


def _copied(folder: Path, to: Path, *, without: str = " ") -> Path:
    to.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if without not in path.name:
            shutil.copy(path, to)
    return to


@pytest.fixture
def whole(traces: Path, capsys: pytest.CaptureFixture[str]) -> str:
    text = _report(capsys, traces, "--workers", "1")
    found = {one["rule"]: one for one in json.loads(text)["outcomes"]}
    assert found["straggling-rank"]["findings"][0]["facts"]["rank"] == WORLD - 1
    return text


def test_reduced_forms_give_the_report_of_the_traces(
    whole: str, reduced: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(list(reduced.iterdir())) == WORLD
    assert _report(capsys, reduced) == whole


def test_any_number_of_workers_and_any_order_give_the_same(
    whole: str, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted(traces.iterdir(), reverse=True)
    assert _report(capsys, *paths) == whole
    assert _report(capsys, *paths[2:], *paths[:2], "--workers", "2") == whole


def test_traces_and_reduced_forms_mix(
    whole: str, traces: Path, reduced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [path for path in sorted(traces.iterdir()) if "t2" not in path.name]
    assert _report(capsys, *some, *reduced.glob("rank00002*")) == whole
    # A rank of which both are there is read from its trace, and its other file is named.
    assert (
        "rank00001-t1.rank"
        in _said(_report(capsys, *sorted(traces.iterdir()), *reduced.glob("rank00001*")))["ranks-twice"]
    )


def test_shards_together_are_the_whole(reduced: Path, traces: Path, tmp_path: Path) -> None:
    for index in range(3):
        assert main(["reduce", str(traces), "-o", str(tmp_path / "out"), "--shard", f"{index}/3", "-q"]) == 0
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert files == {path.name: path.read_bytes() for path in reduced.iterdir()}


@pytest.mark.parametrize("shard", ["3/3", "1", "a/b", "-1/2"])
def test_a_shard_that_is_none_is_refused(shard: str, traces: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reduce", str(traces), "-o", str(tmp_path), "--shard", shard])
    assert ended.value.code == 2


def test_files_that_cannot_be_used_are_named_and_the_others_analyzed(
    reduced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _copied(reduced, tmp_path / "job", without="rank00001")
    (job / "rank00001-t1.rank").write_bytes(next(reduced.glob("rank00001*")).read_bytes()[:3000])
    (job / "rank00007-new.rank").write_bytes(MARK + b"9\nwhatever")
    (job / "notes.json").write_text('{"a": 1}')
    said = _said(_report(capsys, job, tmp_path / "gone.json"))
    assert "missing: 1." in said["ranks-missing"]
    for words in (
        "rank00001-t1.rank (a damaged reduced trace",
        "rank00007-new.rank (a reduced trace of version 9, this torch-advisor reads 1",
        "notes.json (JSON, but not a Kineto trace",
        "gone.json (no such file or folder)",
    ):
        assert words in said["files-aside"]


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.complete)])
def test_a_trace_that_turns_out_unreadable_leaves_the_others(
    workers: str, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _copied(traces, tmp_path / "job", without="t1")
    head = json.dumps(_drawing(1)).partition('"traceEvents"')[0]
    (job / "t1.pt.trace.json").write_text(head + '"traceEvents": []}')
    said = _said(_report(capsys, job, "--workers", workers))
    assert said["ranks-failed"].startswith("not analyzed: t1.pt.trace.json: ")
    assert str(tmp_path) not in said["ranks-failed"]


def test_other_rules_are_said(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", str(traces), "-o", str(tmp_path / "out"), "-q", "--ignore", "input-bound"]) == 0
    text = _report(capsys, tmp_path / "out")
    assert "ranks 0, 1, 2, 3" in _said(text)["ranks-of-another-configuration"]
    found = {one["rule"]: one for one in json.loads(text)["outcomes"]}
    assert (found["input-bound"]["status"], "reduce its trace again" in found["input-bound"]["reason"]) == (
        "skipped",
        True,
    )


def test_what_if_of_a_reduced_form_says_what_is_missing(reduced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = json.loads(_report(capsys, reduced, "--what-if-gpu", "H100"))["what_if"]
    assert "pass the trace of rank" in one["message"]


def test_two_traces_of_one_rank_and_name_are_not_mixed_up(
    traces: Path, reduced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = _copied(traces, tmp_path / "a"), tmp_path / "b"
    second.mkdir()
    shutil.copy(first / "t1.pt.trace.json.gz", second)
    assert main(["reduce", str(second), str(first), "-o", str(tmp_path / "out")]) == 0
    assert f"not reduced: {second / 't1.pt.trace.json.gz'}: a second trace of rank 1" in capsys.readouterr().err
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert files == {path.name: path.read_bytes() for path in reduced.iterdir()}


def test_nothing_to_reduce_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert main(["reduce", str(tmp_path), "-o", str(tmp_path / "out")]) == 4
    assert "not reduced: a.json: JSON, but not a Kineto trace" in capsys.readouterr().err


@pytest.mark.complete
def test_the_command_as_a_process_with_workers(whole: str, traces: Path) -> None:
    command = [sys.executable, "-m", "advisor", "analyze", str(traces), "--format", "json", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", whole)


def test_detail_asks_for_ranks_in_full(traces: Path, reduced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = json.loads(_report(capsys, traces))
    # Up to a node of eight all are shown in full, besides the one that stands for the job.
    reference = few["run"]["reference_rank"]
    assert [one["rank"] for one in few["details"]] == [rank for rank in range(WORLD) if rank != reference]
    asked = json.loads(_report(capsys, traces, "--detail", "2,3"))
    why = {one["rank"]: one["why"] for one in asked["details"]}
    assert all("asked for" in why[rank] for rank in (2, 3) if rank != reference)
    assert asked == json.loads(_report(capsys, reduced, "--detail", "2,3"))
    for one in asked["details"]:
        assert one["timeline"]["lanes"]


@pytest.mark.parametrize(("words", "said"), [("9", "ranks 0 to 3"), ("0,x", "rank numbers"), ("", "rank numbers")])
def test_a_detail_that_is_not_there_is_a_usage_error(
    traces: Path, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["analyze", str(traces), "--detail", words, "--format", "json", "-q"])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert said in capsys.readouterr().err
