"""In place of the session: what the phases of a capture ask for is noted, and nothing is profiled."""

from __future__ import annotations

from typing import Any


class Recorder:
    """Notes what the phases ask for."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.ready = True
        self.compiled = 0
        self.large = False
        self.filled = False
        self.observes = 0
        self.postponed = ""
        self.affordable = False

    def prepare(self) -> bool:
        self.log.append("prepare")
        return self.ready

    def start(self, role: str) -> bool:
        self.log.append(f"start {role}")
        return True

    def open(self, number: int) -> None:
        self.log.append(f"open {number}")

    def close(self) -> None:
        self.log.append("close")

    def stop(self, rows: dict[int, int], partial: bool) -> None:
        self.log.append(f"stop {rows} {partial}")

    def discard(self) -> None:
        self.log.append("discard")

    def compiles(self) -> int:
        return self.compiled

    def too_big(self) -> bool:
        return self.large

    def full(self) -> bool:
        return self.filled

    def affords(self, steps: int) -> bool:
        return not self.large

    def mark(self) -> Any:
        return None

    def timed(self, steps: int) -> None:
        self.timed_steps = steps

    def finished(self) -> None:
        self.log.append("finished")

    def observe(self) -> int:
        return self.observes

    def observed(self, whole: bool) -> None:
        self.log.append(f"observed {whole}")

    def waits(self) -> bool:
        return bool(self.postponed)

    def due(self) -> str:
        return self.postponed if self.affordable else ""
