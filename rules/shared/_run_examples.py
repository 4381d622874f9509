"""Runs for examples of rules: how long each kind of work took, and where samples of the loop stood."""

from __future__ import annotations

from typing import Any


def run_of(kinds: dict[str, tuple[float, int]], *samples: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Facts of a run of these kinds of work, in seconds and times each, after a start of two seconds."""
    timed = {"start": (2.0, 1), **kinds}
    spent = {kind: 1e6 * seconds for kind, (seconds, _) in timed.items()}
    count = {kind: times for kind, (_, times) in timed.items()}
    return {"run": {"before_us": 5e6, "spent_us": spent, "count": count, "samples": [*samples], **more}}


def sample(kind: str, line: int, stretches: int, *marks: str, hits: int = 300, **more: Any) -> dict[str, Any]:
    """Samples at a line of train.py: so many, in so many stretches of that kind of work."""
    at = {"file": "train.py", "function": "main", "line": line, "block": line}
    return {"kind": kind, **at, "marks": [*marks], "stretches": stretches, "hits": hits} | more


TRAINS = sample("step", 80, 300, "forward")
