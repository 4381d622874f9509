"""One step, drawn."""

from __future__ import annotations

from msgspec import Struct


class Segment(Struct, frozen=True):
    """A drawn piece of a timeline lane; times in µs from the start of the drawn step."""

    start_us: float
    dur_us: float
    kind: str
    label: str


class Lane(Struct, frozen=True):
    """A thread or a stream of the drawn step."""

    name: str
    segments: tuple[Segment, ...]


class Timeline(Struct, frozen=True):
    """The recorded step of median duration, merged to a drawable number of segments."""

    step: str
    dur_us: float
    lanes: tuple[Lane, ...]
