"""One step, drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """A drawn piece of a timeline lane; times in µs from the start of the drawn step."""

    start_us: float
    dur_us: float
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A thread or a stream of the drawn step."""

    name: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The recorded step of median duration, merged to a drawable number of segments."""

    step: str
    dur_us: float
    lanes: tuple[Lane, ...]
