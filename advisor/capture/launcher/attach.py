"""Asks a process that is being captured for another window. What it is told, it is told by a file; /proc finds it.

A process that was not started under capture cannot be asked: its profiler would have to be brought up from outside.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, UsageError

_VARIABLE = b"TORCH_ADVISOR_CAPTURE="
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Training:
    """A captured process whose first window is over. folder: of the capture; report: the report's, empty if none."""

    pid: int
    folder: Path
    report: str

    @property
    def part(self) -> dict[str, Any]:
        """What it has left so far."""
        found: dict[str, Any] = json.loads((self.folder / f"{self.pid}.part.json").read_bytes())
        return found


@dataclass(frozen=True, slots=True)
class Recorded:
    """A window: iterations before it, its steps, and where `advisor analyze` finds it."""

    at: int
    steps: int
    report: str


def training_of(pid: int) -> Training:
    """The training in a process or in those that it started. Raises UsageError where there is none to ask."""
    if not Path("/proc/self/environ").exists():
        raise UsageError("attach needs /proc, which this system lacks; use `advisor run --every N`")
    if not Path(f"/proc/{pid}").exists():
        raise UsageError(f"{pid}: no such process; `pgrep -f train.py` finds the process of a script")
    captured = [one for one in (pid, *_descendants(pid)) if _settings(one) is not None]
    if not captured:
        raise UsageError(
            f"{pid} was not started by `advisor run`, or belongs to another user; attach works only under `advisor run`"
        )
    trainings = []
    for one in captured:
        settings = _settings(one) or {}
        folder = Path(settings.get("folder", ""))
        if (folder / f"{one}.part.json").exists():
            trainings.append(Training(one, folder, settings.get("report", "")))
    if not trainings:
        raise AdvisorError(f"{pid} has not trained long enough: its first window is not complete; try again later")
    if len(trainings) > 1 or trainings[0].part["world_size"] > 1:
        raise UsageError(
            f"{pid} trains on several ranks, which must all be recorded at the same step; use `advisor run --every N`"
        )
    return trainings[0]


def record_window(training: Training, timeout_s: float) -> Recorded:
    """Asks for a window and waits for it. Raises AdvisorError where none comes; the request is withdrawn then."""
    before = training.part
    known = len(before.get("later", []))
    request = training.folder / f"ask-{training.pid}"
    request.write_text("")
    until = time.monotonic() + timeout_s
    try:
        while True:
            time.sleep(_PAUSE_S)
            if not Path(f"/proc/{training.pid}").exists() or not training.folder.exists():
                raise AdvisorError(f"{training.pid} ended before the window was recorded; its report has the first one")
            now = training.part
            later = now.get("later", [])
            if len(later) > known:
                files = [one for one in later[-1]["files"] if one["role"] == "profile"]
                return Recorded(later[-1]["at"], sum(len(one["steps"]) for one in files), training.report)
            if time.monotonic() > until:
                raise AdvisorError(_why_none(request, timeout_s))
    except FileNotFoundError as failure:
        raise AdvisorError(f"{training.pid} ended before the window was recorded") from failure
    finally:
        request.unlink(missing_ok=True)


def _why_none(request: Path, timeout_s: float) -> str:
    if request.exists():
        return f"no step ended within {timeout_s:.0f} s, so no window was recorded; wait longer with --timeout S"
    return (
        f"the window was not complete within {timeout_s:.0f} s: it is still being recorded, or was refused because "
        "it would cost too much CPU time (docs/capture.md, Bounds)"
    )


def _descendants(pid: int) -> Iterator[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_bytes().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
            parents.setdefault(parent, []).append(int(path.name))
    left = list(parents.get(pid, []))
    while left:
        one = left.pop()
        yield one
        left += parents.get(one, [])


def _settings(pid: int) -> dict[str, Any] | None:
    """What capture told a process when it was started; None for one that it did not start, or of another user."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found = next((word for word in words if word.startswith(_VARIABLE)), None)
        settings = json.loads(found[len(_VARIABLE) :]) if found is not None else None
    except (OSError, ValueError):
        return None
    return settings if isinstance(settings, dict) and "folder" in settings else None
