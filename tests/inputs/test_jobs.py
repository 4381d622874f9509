"""Which files form one job, and what is said of those that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kineto_files.dialects as made
import pytest

from advisor.errors import InputError
from advisor.inputs import jobs

REAL = Path(__file__).parents[2].parent / "shared" / "traces"
real = pytest.mark.skipif(not REAL.is_dir(), reason="the real traces do not lie beside this checkout")


def _trace(path: Path, rank: int | None = None, world: int | None = None, start: float = 1000.0) -> Path:
    head: dict[str, Any] = {"schemaVersion": 1}
    if rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(made.text(made.rows(2, start), head))
    return path


def _ranks(job: jobs.Job) -> list[tuple[int, str]]:
    return [(one.rank, one.profile.name) for one in job.traces]


def _said(job: jobs.Job) -> dict[str, str]:
    return {item.id: item.message for item in job.health}


def test_one_file(tmp_path: Path) -> None:
    (job,) = jobs.find([_trace(tmp_path / "t.json")])
    assert _ranks(job) == [(0, "t.json")]
    assert job.health == ()


def test_ranks_by_metadata_whatever_their_names(tmp_path: Path) -> None:
    for rank, name in enumerate(("b", "c", "a")):
        _trace(tmp_path / f"{name}.json", rank, 3, 1000.0 + rank)
    (job,) = jobs.find([tmp_path])
    assert _ranks(job) == [(0, "b.json"), (1, "c.json"), (2, "a.json")]
    assert (job.world_size, job.health) == (3, ())


def test_ranks_in_folders_of_their_own(tmp_path: Path) -> None:
    for rank in range(2):
        _trace(tmp_path / f"rank{rank}" / "t.json", rank, 2)
        _trace(tmp_path / "silent" / f"rank_{rank}" / "t.json")
    found = jobs.find([tmp_path])
    assert [[one.rank for one in job.traces] for job in found] == [[0, 1], [0, 1]]


def test_missing_ranks_are_said(tmp_path: Path) -> None:
    for rank in (0, 3):
        _trace(tmp_path / f"r{rank}.json", rank, 4)
    (job,) = jobs.find([tmp_path])
    assert "2 of 4 ranks have a trace; missing: 1, 2" in _said(job)["ranks-missing"]


def test_two_runs_of_the_same_job_are_two_jobs(tmp_path: Path) -> None:
    for start in (1000.0, 3e9):
        for rank in range(2):
            _trace(tmp_path / f"rank{rank}.{start}.json", rank, 2, start)
    assert [[one.rank for one in job.traces] for job in jobs.find([tmp_path])] == [[0, 1], [0, 1]]


def test_a_rank_that_is_there_twice_is_said(tmp_path: Path) -> None:
    for name in ("rank0.1111111", "rank0.2222222", "rank1.3333333"):
        _trace(tmp_path / f"{name}.json", int(name[4]), 2)
    (job,) = jobs.find([tmp_path])
    assert [rank for rank, _ in _ranks(job)] == [0, 1]
    assert "rank0.2222222.json" in _said(job)["ranks-twice"]


def test_ranks_by_name_where_metadata_is_silent(tmp_path: Path) -> None:
    for rank in range(2):
        _trace(tmp_path / f"run_rank{rank}.json")
    (job,) = jobs.find([tmp_path])
    assert _ranks(job) == [(0, "run_rank0.json"), (1, "run_rank1.json")]


def test_numbers_of_loader_workers_are_no_ranks(tmp_path: Path) -> None:
    for workers in (0, 4):
        _trace(tmp_path / f"resnet_workers{workers}.json")
    assert len(jobs.find([tmp_path])) == 2


def test_equal_names_at_other_times_are_other_jobs(tmp_path: Path) -> None:
    for rank in range(2):
        _trace(tmp_path / f"run_rank{rank}.json", start=1000.0 + rank * 3e9)
    assert len(jobs.find([tmp_path])) == 2


def test_one_of_one_is_never_joined(tmp_path: Path) -> None:
    for name in ("rank0", "rank1"):
        _trace(tmp_path / f"{name}.json", 0, 1)
    assert len(jobs.find([tmp_path])) == 2


def _run(folder: Path, **more: Any) -> Path:
    ranks = []
    for rank in range(2):
        files = [
            {"path": f"trace-rank{rank}-9.json", "role": "profile"},
            {"path": f"lines-rank{rank}-9.json", "role": "lines"},
        ]
        for file in files:
            _trace(folder / file["path"], rank, 2)
        ranks.append({"rank": rank, "world_size": 2, "files": files})
    record = {"schema": "torch-advisor/run", "version": 1, "exit_status": 0, "ranks": ranks, **more}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def test_a_recorded_run_knows_its_files(tmp_path: Path) -> None:
    (job,) = jobs.find([_run(tmp_path / "advisor-report")])
    assert _ranks(job) == [(0, "trace-rank0-9.json"), (1, "trace-rank1-9.json")]
    assert [one.lines.name for one in job.traces if one.lines] == ["lines-rank0-9.json", "lines-rank1-9.json"]
    assert job.traces[1].record is not None
    assert job.run is not None
    assert job.health == ()


def test_one_file_of_a_recorded_run_keeps_its_record(tmp_path: Path) -> None:
    folder = _run(tmp_path / "advisor-report")
    (job,) = jobs.find([folder / "trace-rank1-9.json"])
    assert _ranks(job) == [(1, "trace-rank1-9.json")]
    assert job.traces[0].record is not None
    assert "ranks-missing" in _said(job)


def test_lines_alone_are_refused(tmp_path: Path) -> None:
    folder = _run(tmp_path / "advisor-report")
    with pytest.raises(InputError, match="whole folder"):
        jobs.find([folder / "lines-rank1-9.json"])


def test_a_run_that_goes_on_is_said(tmp_path: Path) -> None:
    (job,) = jobs.find([_run(tmp_path / "r", exit_status=None)])
    assert "run-unfinished" in _said(job)


def test_all_files_of_a_recorded_run_by_name(tmp_path: Path) -> None:
    """What ops read lies beside the traces: `advisor analyze advisor-report/*` takes the run, and that file is none."""
    folder = _run(tmp_path / "advisor-report")
    record = json.loads((folder / "run.json").read_text())
    record["ranks"][0]["dataflow"] = {"file": "dataflow-rank0-9.gz"}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "dataflow-rank0-9.gz").write_bytes(b"")
    (job,) = jobs.find(sorted(folder.iterdir()))
    assert len(_ranks(job)) == 2
    with pytest.raises(InputError, match="none of the named files is a trace"):
        jobs.find([folder / "dataflow-rank0-9.gz"])


def test_a_run_json_leads_nowhere_else(tmp_path: Path) -> None:
    _trace(tmp_path / "secret.json", 0, 1)
    folder = tmp_path / "r"
    folder.mkdir()
    record = {"ranks": [{"rank": 0, "files": [{"path": "../secret.json", "role": "profile"}]}]}
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="no trace listed"):
        jobs.find([folder])


def test_a_folder_of_everything(tmp_path: Path) -> None:
    _trace(tmp_path / "t.json")
    (tmp_path / "et.json").write_text('{"schema": "1.0", "nodes": []}')
    (tmp_path / "timeline.json").write_text("[[1, 2], [[3]]]")
    (tmp_path / "lfs.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "x.pftrace").write_bytes(b"\x0a\x01")
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("x")
    (job,) = jobs.find([tmp_path])
    said = _said(job)["files-aside"]
    assert _ranks(job) == [(0, "t.json")]
    assert all(name in said for name in ("et.json (an execution trace", "timeline.json", "lfs.json", "x.pftrace"))
    assert "report.json" not in said


def test_an_unfinished_file_counts_where_the_whole_one_is_absent(tmp_path: Path) -> None:
    _trace(tmp_path / "a.json.tmp", 0, 2)
    _trace(tmp_path / "b.json", 1, 2)
    _trace(tmp_path / "b.json.tmp", 1, 2)
    (job,) = jobs.find([tmp_path])
    assert _ranks(job) == [(0, "a.json.tmp"), (1, "b.json")]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("none.json", None, "no such file"),
        ("et.json", b'{"schema": "1.0", "nodes": []}', "execution trace"),
        ("timeline.json", b"[[1, 2], [[3]]]", "memory timeline"),
        ("lfs.json", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("t.pftrace", b"\x0a\x8c\x01\x08\x01\x12" + bytes(64), "protobuf"),
        ("t.sqlite", b"SQLite format 3\x00", "SQLite"),
        ("some.json", b'{"schema": "torch-advisor/report"}', "stored report"),
        ("empty.json", b"", "empty file"),
    ],
)
def test_a_named_file_that_is_no_trace(name: str, data: bytes | None, says: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=says) as refusal:
        jobs.find([tmp_path / name])
    assert "\n" not in str(refusal.value)
    assert name in str(refusal.value)


def test_a_folder_without_traces(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace in it"):
        jobs.find([tmp_path])
    (tmp_path / "et.json").write_text('{"schema": "1.0", "nodes": []}')
    with pytest.raises(InputError, match=r"no trace among 1 file; et\.json: an execution trace"):
        jobs.find([tmp_path])


@real
def test_real_traces() -> None:
    (job,) = jobs.find([REAL / "dlrm_8ranks_v100"])
    assert [one.rank for one in job.traces] == list(range(8))
    assert job.health == ()
    assert len(jobs.find(REAL.glob("resnet50_workers*"))) == 2
