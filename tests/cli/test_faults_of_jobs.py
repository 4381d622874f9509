"""What befalls some ranks of a job: the others are analyzed, and one line names each that is missing and why."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import kineto_files.dialects as made
import pytest
from http_faults import Server, serving

from advisor.cli import main
from advisor.places import remote

pytestmark = pytest.mark.variants(2)

WORLD = 4
BASE_NS = 1_759_104_000_000_000_000
HOUR_NS = 3_600_000_000_000


def _trace(folder: Path, rank: int, elements: int = 1_000, ahead_ns: int = 0, longer: int = 0, steps: int = 6) -> Path:
    """Steps of a rank with a sum over all ranks at the end of each. longer: bytes that say nothing."""
    rows = made.rows(steps)
    sums = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "pid": 0,
            "tid": 16,
            "ts": start,
            "dur": 200.0,
            "args": {
                **{"External id": 900 + step, "device": 0, "stream": 16, "Collective name": "allreduce"},
                **{"In msg nelems": elements, "Out msg nelems": elements, "Group size": WORLD, "dtype": "Float"},
                **{"Process Group Name": "0", "Seq": step},
            },
        }
        for step, start in enumerate(_ends(rows))
    ]
    head = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": BASE_NS + ahead_ns,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": WORLD},
        "noise": "x" * longer,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{rank}.pt.trace.json"
    path.write_text(made.text([*rows, *sums], head))
    return path


def _ends(rows: list[dict[str, Any]]) -> list[float]:
    return [row["ts"] + row["dur"] - 300.0 for row in rows if str(row["name"]).startswith("ProfilerStep")]


def _job(folder: Path, longer: int = 0) -> Path:
    for rank in range(WORLD):
        _trace(folder, rank, longer=longer)
    return folder


def _report(capsys: pytest.CaptureFixture[str], *words: Path | str) -> dict[str, Any]:
    assert main(["analyze", *map(str, words), "--format", "json", "-q"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def _said(report: dict[str, Any]) -> dict[str, str]:
    return {one["id"]: one["message"] for one in report["health"]}


def test_clocks_that_are_hours_apart_change_nothing_but_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(WORLD):
        _trace(tmp_path / "apart", rank, ahead_ns=rank // 2 * 3 * HOUR_NS)
    whole, apart = _report(capsys, _job(tmp_path / "job")), _report(capsys, tmp_path / "apart")
    assert "up to 10,800 s apart" in _said(apart)["clocks-apart"]
    assert apart["compared"] == whole["compared"]
    assert apart["compared"]["uncertain_us"] is not None
    assert apart["outcomes"] == whole["outcomes"]
    assert [one for one in apart["health"] if one["id"] != "clocks-apart"] == whole["health"]


def test_parts_of_two_runs_are_no_job_of_differing_clocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(WORLD - 1):
        _trace(tmp_path, rank, ahead_ns=rank // 2 * 3 * HOUR_NS)
    assert main(["analyze", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "2 unrelated jobs" in line
    assert "only if every rank has a trace" in line


def test_ranks_of_two_jobs_that_were_mixed_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(WORLD):
        _trace(tmp_path, rank, elements=1_000 if rank < 3 else 7)
    report = _report(capsys, tmp_path)
    assert "ranks 0, 1, 2 and rank 3 sum different sizes" in _said(report)["ranks-unlike"]
    assert all(one["waits_us"] is None for one in report["compared"]["ranks"])
    straggling = next(one for one in report["outcomes"] if one["rule"] == "straggling-rank")
    assert straggling["status"] == "skipped"
    assert "hardly of one job" in straggling["reason"]


def test_an_empty_bucket_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    fsspec = pytest.importorskip("fsspec", reason="the extra `cluster` is not installed")
    system = fsspec.filesystem("memory")
    system.mkdirs("/empty", exist_ok=True)
    try:
        for words in (["analyze"], ["reduce", "-o", "nowhere"]):
            assert main([*words, "memory://empty"]) == 4
            (line,) = capsys.readouterr().err.strip().splitlines()
            assert "memory://empty: no trace in it" in line
    finally:
        system.store.clear()
        system.pseudo_dirs[:] = [""]
    assert not Path("nowhere").exists()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    pytest.importorskip("aiohttp", reason="the extra `cluster` is not installed")
    with serving(_job(tmp_path / "www", 8 << 20)) as found:
        yield found


@pytest.mark.parametrize("late", [0, 2], ids=["at once", "after a look at it"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("403", "access is refused"),
        ("404", "no such file"),
        ("slow", "no answer within 0.5 s"),
        ("cut", "3 times"),
        ("grows", "changed while it was being read"),
    ],
)
def test_a_rank_that_cannot_be_fetched_leaves_the_others(
    server: Server,
    fault: str,
    said: str,
    late: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(remote, "STALL_S", 0.5)
    monkeypatch.setattr(remote, "_PAUSE_S", 0.0)
    server.fault, server.only, server.late = fault, "rank2", late
    report = _report(capsys, server.address + "/", "--workers", "1")
    assert [one["rank"] for one in report["ranks"]] == [0, 1, 3]
    told = [line for line in _said(report).values() if "rank2.pt.trace.json" in line]
    assert len(told) == 1
    assert said in told[0]


def _full(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The disk is full once so many files were written: writing gives what the system says of /dev/full."""
    real, made_so_far = tempfile.mkstemp, []

    def mkstemp(*args: Any, **keys: Any) -> tuple[int, str]:
        handle, name = real(*args, **keys)
        made_so_far.append(name)
        if len(made_so_far) > after:
            os.close(handle)
            handle = os.open("/dev/full", os.O_WRONLY)
        return handle, name

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_keeps_what_was_reduced_and_says_how_much_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _full(monkeypatch, after=3)
    assert main(["reduce", str(_job(tmp_path / "job")), "-o", str(tmp_path / "out"), "--workers", "1"]) == 4
    out, err = capsys.readouterr()
    (line,) = err.strip().splitlines()
    assert os.strerror(errno.ENOSPC) in line
    assert "rank00003" in line
    assert out.startswith("3 of 4 traces reduced")
    monkeypatch.undo()
    report = _report(capsys, tmp_path / "out")
    assert "3 of 4 ranks have a trace; missing: 3" in _said(report)["ranks-missing"]
    assert len(list((tmp_path / "out").iterdir())) == 3


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see processes")
def test_a_worker_that_is_killed_takes_only_its_rank_along(tmp_path: Path) -> None:
    out, job = tmp_path / "report.json", _job(tmp_path / "job")
    large = _trace(job, 2, steps=6_000)
    words = ["analyze", str(job), "--workers", "2", "-q", "--format", "json", "-o", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "advisor", *words], stderr=subprocess.PIPE, text=True)
    try:
        killed = _killed_while_it_reads(process, large)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (killed, process.returncode) == (True, 0), said
    report = json.loads(out.read_text())
    assert [one["rank"] for one in report["ranks"]] == [0, 1, 3]
    assert "rank2.pt.trace.json: the process that read it ended (signal 9" in _said(report)["ranks-failed"]


def _killed_while_it_reads(process: subprocess.Popen[str], path: Path) -> bool:
    """Kills the process of a command's that has a file open, once one has; False where the command ends before."""
    while process.poll() is None:
        with suppress(OSError):
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                if _has_open(child, path):
                    os.kill(int(child), signal.SIGKILL)
                    return True
        time.sleep(0.002)
    return False


def _has_open(child: str, path: Path) -> bool:
    for one in Path(f"/proc/{child}/fd").iterdir():
        with suppress(OSError):
            if one.readlink() == path:
                return True
    return False
