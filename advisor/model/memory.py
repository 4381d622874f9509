"""What holds memory at the peak."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model.findings import Risk


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """Bytes at the peak of one kind, module or line. note: "others" or "not attributed" where it is no single one."""

    name: str
    bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Live bytes at an instant, µs from the start of the window.

    bytes: of weights, optimizer, gradients, activations, temporaries, input and unknown ones, in this order
    """

    us: float
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryRelief:
    """A change that frees memory: of the peak at most `bytes`, before another moment becomes the peak.

    forward_us: what a second forward of the module takes per step, profiled; None where not known or not needed
    """

    title: str
    bytes: int
    risk: Risk
    forward_us: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPeak:
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
