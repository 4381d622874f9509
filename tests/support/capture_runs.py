"""Runs real scripts, bare and under capture, for the tests of capture."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.capture.launcher import launch

SCRIPTS = Path(__file__).parents[1] / "scripts"
# The installed command, as users start it: `python -m advisor` would find a script folder's own advisor.py.
COMMAND = (str(Path(sys.executable).with_name("advisor")),)
# Long enough for a loaded machine; a hang is a failure, not a wait for ever.
LIMIT_S = 120
# Python and torch as users have them, without what the tests' processes leave out (`children/sitecustomize.py`).
AS_USERS_HAVE_IT = {"PYTHONPATH": ""}

FOLLOWS_HOOKED_STEPS = pytest.mark.skipif(
    sys.version_info[:3] == (3, 13, 0),
    reason="on Python 3.13.0 PyTorch's compiler gives up the frame of a compiled optimizer step in which any hook runs",
)


def fully_shards_on_cpus(torch: Any) -> pytest.MarkDecorator:
    """For tests that call fully_shard on a CPU. In torch 2.6 it fails there, though it can be imported."""
    return pytest.mark.skipif(
        not hasattr(torch.cpu.Stream, "record_event"),
        reason="fully_shard of this torch asks streams of a CPU for events that they do not have",
    )


@dataclass(frozen=True)
class Done:
    """What a finished process left."""

    status: int
    out: bytes
    err: bytes


def bare(*command: str, cwd: Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
    """The command as a user would run it without us."""
    done = subprocess.run(
        command, cwd=cwd, input=stdin, env=environment(env), capture_output=True, timeout=LIMIT_S, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def advised(*words: str, cwd: Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
    """`advisor run` with these words."""
    return bare(*COMMAND, "run", *words, cwd=cwd, stdin=stdin, env=env)


def environment(extra: dict[str, str] | None) -> dict[str, str]:
    """This process's environment, with few threads: the tests share two cores."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **(extra or {})}


@dataclass(frozen=True)
class Captured:
    """What capture alone (no report) left of a script: its end, run.json, and the traces."""

    status: int
    out: str
    err: str
    record: dict[str, Any]
    folder: Path

    @property
    def rank(self) -> dict[str, Any]:
        """The only rank."""
        assert len(self.record["ranks"]) == 1, [rank["rank"] for rank in self.record["ranks"]]
        return self.record["ranks"][0]

    def events(self, role: str = "profile", rank: int = 0) -> list[dict[str, Any]]:
        """Complete events of a trace, by start."""
        ranks = [one for one in self.record["ranks"] if one["rank"] == rank]
        name = next(file["path"] for one in ranks for file in one["files"] if file["role"] == role)
        document = json.loads(gzip.decompress((self.folder / name).read_bytes()))
        rows = [row for row in document["traceEvents"] if row.get("ph") == "X"]
        return sorted(rows, key=lambda row: row["ts"])

    def step_rows(self, role: str = "profile") -> list[dict[str, Any]]:
        """Rows of whole training steps."""
        return [row for row in self.events(role) if re.fullmatch(r"ProfilerStep#\d+", row["name"])]


def capture(
    folder: Path,
    *words: str | Path,
    launcher: bool = False,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    **options: Any,
) -> Captured:
    """Runs a script (or, with launcher=True, a whole command) under capture, without the report."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(word) for word in words]
    target = (
        launch.Target(tuple(command), False, launch.targets_of(command))
        if launcher
        else launch.Target((sys.executable, *command), True)
    )
    settings = launch.environment(target, folder, launch.Options(**options), environment(env))
    done = subprocess.run(
        target.command,
        env=settings,
        cwd=cwd or folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    record = launch.assemble(folder, {"exit_status": done.returncode})
    failed = [path.read_text() for path in folder.glob("failed-*")]
    assert not failed, failed
    return Captured(done.returncode, done.stdout, done.stderr, record, folder)
