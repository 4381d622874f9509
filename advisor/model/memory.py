"""What holds memory at the peak."""

from __future__ import annotations

from msgspec import Struct

from advisor.model.findings import Risk


class MemoryHolder(Struct, frozen=True):
    """Bytes of one kind, module or line at the peak. note: "others" or "not attributed" if it is not a single one."""

    name: str
    bytes: int
    note: str = ""


class MemoryPoint(Struct, frozen=True):
    """Live bytes at one time, µs from the start of the window.

    bytes: weights, optimizer state, gradients, activations, temporaries, input and unknown, in this order
    """

    us: float
    bytes: tuple[int, ...]


class MemoryRelief(Struct, frozen=True):
    """A change that lowers the memory peak by at most `bytes`, after which another time becomes the peak.

    forward_us: duration of a second forward pass of the module per profiled step; None if unknown or not needed
    """

    title: str
    bytes: int
    risk: Risk
    forward_us: float | None = None


class MemoryPeak(Struct, frozen=True):
    """What tensors hold at the peak of the profiled window; `kinds`, `modules` and `lines` each sum to peak_bytes.

    at_us   from the start of the window
    """

    rank: int
    on_device: bool
    peak_bytes: int
    at_us: float
    kinds: tuple[MemoryHolder, ...] = ()
    modules: tuple[MemoryHolder, ...] = ()
    lines: tuple[MemoryHolder, ...] = ()
    timeline: tuple[MemoryPoint, ...] = ()
    reliefs: tuple[MemoryRelief, ...] = ()
