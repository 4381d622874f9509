"""Ranks read by workers of dask: the same report, whatever becomes of workers, files and the scheduler."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import kineto_files.dialects as made
import pytest
from dask_cluster import Cluster, cluster

from advisor.cli import main
from advisor.engine import dask_workers

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
WORLD = 4
# Loaded into a worker: no trace is read before the file `go` is there, so that a test can end what waits.
SLOW = """
import time
from pathlib import Path
from advisor.engine import dask_task
def answer(reducer, one, tell, reads=dask_task.rank_process.answer):
    Path({folder!r}, "reading-" + one.path.name).touch()
    while not Path({folder!r}, "go").exists():
        time.sleep(0.02)
    return reads(reducer, one, tell)
dask_task.rank_process.answer = answer
"""


def _write(path: Path, rank: int, world: int = WORLD) -> None:
    head = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
    noise = "".join(random.Random(rank).choices("0123456789abcdef", k=1000))
    path.write_bytes(gzip.compress(made.text(made.rows(6), {**head, "noise": noise}).encode()))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    for rank in range(WORLD):
        _write(folder / f"t{rank}.json.gz", rank)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask"), 2) as found:
        yield found


def _report(capsys: pytest.CaptureFixture[str], *words: Path | str) -> str:
    assert main(["analyze", *map(str, words), "--format", "json", "-q"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def _said(text: str) -> dict[str, str]:
    return {one["id"]: one["message"] for one in json.loads(text)["health"]}


def test_the_report_is_that_of_one_process(
    job: Path, two: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _report(capsys, job, "--workers", "1")
    # The workers run in folders of their own.
    monkeypatch.chdir(job.parent)
    assert _report(capsys, job.name, "--scheduler-file", two.file) == whole
    address = json.loads(two.file.read_text())["address"]
    assert _report(capsys, *sorted(job.iterdir(), reverse=True), "--scheduler", address) == whole


def test_reduced_forms_are_the_same_files(job: Path, two: Cluster, tmp_path: Path) -> None:
    assert main(["reduce", str(job), "-o", str(tmp_path / "a"), "-q", "--workers", "1"]) == 0
    assert main(["reduce", str(job), "-o", str(tmp_path / "b"), "-q", "--scheduler-file", str(two.file)]) == 0
    files = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert len(files) == WORLD
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}


def test_a_damaged_file_is_named_and_the_others_are_analyzed(
    job: Path, two: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(job, tmp_path / "job")
    head = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": WORLD}}
    (tmp_path / "job" / "t1.json.gz").write_bytes(gzip.compress(json.dumps({**head, "traceEvents": []}).encode()))
    monkeypatch.chdir(tmp_path)
    whole = _report(capsys, "job", "--workers", "1")
    assert _said(whole)["ranks-failed"].startswith("not analyzed: t1.json.gz: ")
    assert _report(capsys, "job", "--scheduler-file", two.file) == whole


@pytest.mark.complete
def test_a_worker_of_another_version_is_an_error_of_one_line(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preload = tmp_path / "older.py"
    preload.write_text("import advisor.engine.dask_task as task\ntask.__version__ = '0.0.7'\n")
    with cluster(tmp_path) as found:
        found.add_worker("--preload", str(preload))
        assert main(["analyze", str(job), "--scheduler-file", str(found.file), "--format", "json"]) == 4
    said = capsys.readouterr().err
    assert "torch-advisor" in said
    assert "0.0.7 there; install the same in both" in said
    assert said.count("\n") == 1


def _started(job: Path, found: Cluster, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "advisor", "analyze", str(job), "--scheduler-file", str(found.file)]
    return subprocess.Popen(
        [*command, "--format", "json", "-q", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _waiting(folder: Path, number: int) -> None:
    until = time.monotonic() + 60
    while len(list(folder.glob("reading-*"))) < number:
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Cluster]:
    """Two workers whose ranks wait for the file `go`."""
    preload = tmp_path / "slow.py"
    preload.write_text(SLOW.format(folder=str(tmp_path)))
    with cluster(tmp_path) as found:
        for _ in range(2):
            found.add_worker("--preload", str(preload))
        yield found


@pytest.mark.complete
def test_a_killed_worker_takes_no_rank_along(job: Path, held: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    command = _started(job, held)
    _waiting(held.folder, 2)
    held.workers[0].kill()
    (held.folder / "go").touch()
    out, said = command.communicate(timeout=120)
    assert said == ""
    assert command.returncode == 0
    assert out == _report(capsys, job, "--workers", "1")


@pytest.mark.complete
def test_a_scheduler_that_goes_away_leaves_what_was_read_and_the_rest_is_named(job: Path, held: Cluster) -> None:
    command = _started(job, held)
    _waiting(held.folder, 2)
    held.scheduler.send_signal(signal.SIGKILL)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 4
    assert "stopped responding" in said
    assert said.count("\n") == 1


@pytest.mark.complete
def test_ctrl_c_ends_at_once_and_cancels_its_tasks(job: Path, held: Cluster) -> None:
    command = _started(job, held)
    _waiting(held.folder, 2)
    os.killpg(command.pid, signal.SIGINT)
    assert command.communicate(timeout=30) == ("", "")
    assert command.returncode == 130
    (held.folder / "go").touch()
    from distributed import Client

    with Client(scheduler_file=str(held.file), set_as_default=False) as client:
        assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0
    # The two that had begun are read to their end; no other begins.
    assert len(list(held.folder.glob("reading-*"))) == 2


@pytest.mark.parametrize("speaks", [False, True])
def test_a_scheduler_that_does_not_answer_is_one_line(
    speaks: bool, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dask_workers, "CONNECT_S", 1.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if speaks:
            listener.listen()  # takes the connection, and never says a word
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        assert main(["analyze", str(job), "--scheduler", address, "--format", "json"]) == 4
    said = capsys.readouterr().err
    assert said == (
        f"advisor: {address}: no Dask scheduler answered within 1 s; check its address, and that it is running\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scheduler", "nonsense"], "not an address such as tcp://host:8786"),
        (["--scheduler-file", "absent.json"], "cannot be read (No such file or directory)"),
    ],
)
def test_an_address_that_is_none_is_a_usage_error(
    words: list[str], said: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(job), *words]) == 2
    assert said in capsys.readouterr().err
