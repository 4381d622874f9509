"""Reduced traces while the script runs: begun once, on an idle core, with the least priority, and ended with it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import kineto_files.dialects as made
import pytest

from advisor.capture.launcher.publish import Publisher
from advisor.cli import main
from advisor.commands import _early_forms
from advisor.commands._early_forms import EarlyForms, a_core_is_idle


def _run_folder(folder: Path, world: int = 2) -> Path:
    """What the ranks of a run have left so far."""
    folder.mkdir(exist_ok=True)
    ranks = []
    for rank in range(world):
        head = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
        name = f"trace-rank{rank}-9.json"
        (folder / name).write_text(made.text(made.rows(6), head))
        ranks.append({"rank": rank, "world_size": world, "files": [{"path": name, "role": "profile"}]})
    (folder / "run.json").write_text(json.dumps({"schema": "torch-advisor/run", "version": 1, "ranks": ranks}))
    return folder


def _publisher(home: Path) -> Publisher:
    return cast("Publisher", argparse.Namespace(published={"a trace"}, home=lambda: home))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were begun with."""
    folders: list[Path] = []

    def started(self: EarlyForms, home: Path) -> subprocess.Popen[bytes]:
        folders.append(home)
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(EarlyForms, "_started", started)
    monkeypatch.setattr(_early_forms, "a_core_is_idle", lambda: True)
    return folders


def _looked(early: EarlyForms, home: Path) -> None:
    for _ in range(3):
        early.look(_publisher(home))
    early.end()


def test_it_begins_once(tmp_path: Path, begun: list[Path]) -> None:
    home = _run_folder(tmp_path)
    _looked(EarlyForms([], wait_s=0.0), home)
    assert begun == [home]


def test_it_waits_for_the_other_ranks(tmp_path: Path, begun: list[Path]) -> None:
    _looked(EarlyForms([], wait_s=60.0), _run_folder(tmp_path))
    assert begun == []


def test_a_job_of_one_rank_has_none(tmp_path: Path, begun: list[Path]) -> None:
    _looked(EarlyForms([], wait_s=0.0), _run_folder(tmp_path, world=1))
    assert begun == []


def test_without_an_idle_core_it_does_not_begin(
    tmp_path: Path, begun: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_early_forms, "a_core_is_idle", lambda: False)
    _looked(EarlyForms([], wait_s=0.0), _run_folder(tmp_path))
    assert begun == []


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not tell a process's cores")
@pytest.mark.parametrize(
    ("load", "quota", "idle"), [(3.0, 4.0, True), (3.5, 4.0, False), (6.9, float("inf"), True), (7.5, 16.0, False)]
)
def test_a_core_is_idle_where_load_leaves_one(
    load: float, quota: float, idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(_early_forms, "_quota", lambda: quota)
    assert a_core_is_idle() == idle


def test_what_it_makes_is_what_reduce_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    # In this process: it would keep the priority.
    monkeypatch.setattr(os, "nice", lambda more: asked.update(nice=more))
    monkeypatch.setattr(os, "sched_setscheduler", lambda _pid, way, _param: asked.update(way=way), raising=False)
    monkeypatch.setattr("resource.setrlimit", lambda which, most: asked.update({str(which): most}))
    monkeypatch.setenv("_TORCH_ADVISOR_SHARED_BY", "1")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    home = _run_folder(tmp_path / "run")
    try:
        assert _early_forms.main([str(home)]) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (asked["nice"], len(asked)) == (19, 3 if hasattr(os, "SCHED_IDLE") else 2)
    assert main(["reduce", str(home), "-o", str(tmp_path / "small"), "-q", "--workers", "1"]) == 0
    made_early = {path.name: path.read_bytes() for path in home.glob("*.rank")}
    assert made_early == {path.name: path.read_bytes() for path in (tmp_path / "small").iterdir()}
    assert len(made_early) == 2


def test_without_memory_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "nice", lambda _more: 0)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_words: None, raising=False)
    monkeypatch.setattr("resource.setrlimit", lambda *_words: None)
    monkeypatch.setattr("advisor.engine.worker_count.free_memory_bytes", lambda: 10_000_000)
    assert _early_forms.main([str(_run_folder(tmp_path))]) == 1
    assert list(tmp_path.glob("*.rank")) == []


def test_it_ends_with_the_script(tmp_path: Path, begun: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    stubborn = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    monkeypatch.setattr(EarlyForms, "_started", lambda _self, _home: stubborn)
    started = time.monotonic()
    _looked(EarlyForms([], wait_s=0.0), _run_folder(tmp_path))
    assert stubborn.returncode == -signal.SIGKILL
    assert time.monotonic() - started < 30
    stubborn.stdout.close()
