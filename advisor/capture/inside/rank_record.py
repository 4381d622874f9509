"""This rank's part of run.json: what one process's capture leaves behind beside its traces."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from .facts import probe

if TYPE_CHECKING:
    from .session import Session
    from .steps.phases import Phases


def write(folder: str, part: dict[str, Any]) -> None:
    """Writes it aside and renames it. Named by process alone: a rank may be known only after the first writing."""
    path = os.path.join(folder, f"{os.getpid()}.part.json")
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(json.dumps(part))  # json.dump is ten times as slow: it has no loop in C
    os.replace(path + ".tmp", path)


def record(session: Session) -> dict[str, Any]:
    """What is known by now, with the keys of `record.RankRecord`."""
    first = session.first
    window, clock = (first.window, first.clock) if first is not None else (session.window, session.clock)
    return {
        "rank": session.place.rank(),
        "world_size": session.place.world_size(),
        **session.place.local(),
        "pid": os.getpid(),
        "files": window.files,
        "steps": _steps(session),
        **session.first_loop.facts.known,
        "run": session.run.record(),
        "vitals": session.first_loop.vitals.record(not session.live) | _windows(first.phases if first else None),
        **session.first_loop.gathered(),
        "warnings": list(session.collector.warnings),
        "notes": [
            *session.notes,
            *window.notes,
            *filter(None, window.costs.postponed.values()),
            *session.later.notes(),
            *session.collector.notes(session.tracker.optimizer_steps),
            *filter(None, [clock.note]),
        ],
        "later": session.later.record(),
        "evaluation_graph": session.evaluations.record(session.tracker.trained),
        "batch_lengths": session.padding.found,
        "sample_lengths": session.padding.lengths,
        **window.record(),
        "versions": probe.versions(),
        "out_of_memory": session.ran_out,
    }


def _steps(session: Session) -> dict[str, Any]:
    tracker = session.tracker
    steps: dict[str, Any] = {
        "source": tracker.source or "window",
        "count": tracker.count,
        "eval_count": tracker.eval_count(),
        "optimizer_steps": tracker.optimizer_steps,
    }
    if session.first is not None:
        steps |= session.first.steps()
    return steps


def _windows(phases: Phases | None) -> dict[str, Any]:
    """How many windows were recorded until one was calm, and how calm that is which was kept."""
    return {"windows": phases.windows, "window_waited": phases.waited} if phases is not None and phases.windows else {}
