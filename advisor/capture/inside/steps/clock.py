"""What tells the length of an un-profiled step: events on the device, else two synchronisations, else the host's clock.

An event is recorded on the device's stream and read after the phase, so that nothing waits. A device that has no events
with times is synchronised twice, around the whole phase: only the mean is known then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from ..guards.interrupts import let_through

# A pair of marks: nanoseconds of the host's clock, or events of the device.
Pair = tuple[Any, Any]


class Clock:
    """Marks the boundaries of un-profiled steps. device: says the type of the device in use ("cuda", "cpu" …)."""

    def __init__(self, device: Callable[[], str]) -> None:
        self.device = device
        self.kind = ""  # host | device | mean, once the first mark was made
        self.note = ""
        self.module: Any = None
        self.marks = 0
        self.began_ns = 0
        self.mean_us: float | None = None

    @property
    def host_alone(self) -> bool:
        """No device is in use: what the host's clock tells of a part of a step is all of it."""
        return self.kind == "host" and self.module is None and not self.note

    def mark(self) -> Any:
        """An event of the device; None where the host's clock is to be read."""
        if not self.kind:
            self._choose()
        self.marks += 1
        if self.kind == "device":
            try:
                return self._event()
            except Exception as failure:
                let_through(failure)
                self._complain(f"its events fail ({type(failure).__name__})")
                self.kind = "host"
        return None

    def begin_again(self) -> None:
        """What was marked counts no more; the device may be another one by now."""
        self.kind, self.note, self.module, self.marks, self.mean_us = "", "", None, 0, None

    def phase_ends(self, steps: int) -> None:
        """The phase is over, with so many whole steps in it: the mean of those, where the device was synchronised."""
        if self.kind == "mean" and self.mean_us is None and 0 < steps == self.marks - 1:
            self.module.synchronize()
            self.mean_us = (perf_counter_ns() - self.began_ns) / 1e3 / steps

    def durations(self, before: list[Pair], after: list[Pair]) -> dict[str, Any]:
        """Step times in µs in order, the clock that told them, and their mean where nothing else is known."""
        if self.kind == "mean":
            return {"unprofiled_us": [], "clock": "mean", "unprofiled_mean_us": self.mean_us}
        pairs = [*before, *after]
        if pairs and isinstance(pairs[0][0], int):
            times = [(end - start) / 1e3 for start, end in pairs if isinstance(start, int) and isinstance(end, int)]
            return {"unprofiled_us": times, "clock": "host", "unprofiled_mean_us": None}
        read = [(start, end) for start, end in pairs if hasattr(start, "query") and hasattr(end, "query")]
        times = [start.elapsed_time(end) * 1e3 for start, end in read if end.query()]
        return {"unprofiled_us": times, "clock": "device" if pairs else "host", "unprofiled_mean_us": None}

    def _choose(self) -> None:
        """Finds out, at the first mark, what this device offers."""
        kind = _device_in_use(self.device())
        self.kind = "host"
        if kind in ("", "cpu"):
            return
        self.module = getattr(torch, kind, None)
        try:
            self._event()
            self.kind = "device"
        except Exception as failure:
            let_through(failure)
            self._synchronise_first(kind)

    def _synchronise_first(self, kind: str) -> None:
        try:
            self.module.synchronize()
        except Exception as failure:
            let_through(failure)
            self._complain(f"{kind} has neither events nor a way to wait for it")
            return
        self.began_ns = perf_counter_ns()
        self.kind = "mean"
        self.note = (
            f"{kind} has no events with times: only the mean time of un-profiled steps is known (from two "
            "synchronizations), not the spread"
        )

    def _event(self) -> Any:
        kind = getattr(self.module, "Event", None) or self.module.event.Event  # torch.mps keeps its own in a module
        event = kind(enable_timing=True)
        event.record()
        return event

    def _complain(self, why: str) -> None:
        self.note = f"step times were measured on the host, because of the device: {why}"


def _device_in_use(parameters: str) -> str:
    """The device that decides when a step is over; asking must not bring one up."""
    if torch.cuda.is_initialized():
        return "cuda"
    if parameters not in ("", "cpu"):
        return parameters
    xpu = sys.modules.get("torch.xpu")
    return "xpu" if xpu is not None and hasattr(xpu, "is_initialized") and xpu.is_initialized() else parameters
