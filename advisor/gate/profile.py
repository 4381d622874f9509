"""Profiles a command through `advisor run`, in a process of its own, and reads the report it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from advisor.errors import FAILED, USAGE
from advisor.gate.files import GateError, read_report
from advisor.model import Report

# A profile needs some tens of steps; a script that has not given them by then hangs or is no training.
_TIMEOUT_S = 3600


def profile(command: Sequence[str], folder: Path | None = None, env: dict[str, str] | None = None) -> Report:
    """The report of a profiled run of `command` (a script and its arguments, or a launcher) in `folder`.

    The script's own output goes to stderr, so that stdout stays ours. Raises GateError: 4 where the script failed or
    left no report, 2 where nothing could be started.
    """
    with tempfile.TemporaryDirectory(prefix="advisor-gate-") as scratch:
        out = Path(scratch) / "report"
        words = [sys.executable, "-P", "-m", "advisor", "run", "--quiet", "--stop-after-profile", "--format", "json"]
        words += ["--output", str(out), "--", *command] if _is_launcher(command) else ["--output", str(out), *command]
        status = _run(words, folder, env)
        shown = " ".join(command[:3])
        if status == USAGE and not (out / "report.json").exists():
            raise GateError(f"{shown}: could not be started; see the line above", USAGE)
        if status != 0 or not (out / "report.json").exists():
            raise GateError(
                f"{shown}: the measured script failed with status {status}; run it alone to see why", FAILED
            )
        return read_report(out, baseline=False)


def _run(words: Sequence[str], folder: Path | None, env: dict[str, str] | None) -> int:
    try:
        return subprocess.run(
            words, cwd=folder, env=env or dict(os.environ), stdout=sys.stderr, timeout=_TIMEOUT_S, check=False
        ).returncode
    except subprocess.TimeoutExpired as failure:
        raise GateError(f"{words[-1]}: still running after {_TIMEOUT_S} s; give it fewer steps", FAILED) from failure


def _is_launcher(command: Sequence[str]) -> bool:
    return not command[0].endswith(".py") and command[0] not in ("-m", "-c")
