"""The accelerator that a trace shows, as far as the trace tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.computed import Missing
from advisor.trace.events import Trace

Kind = Literal["cuda", "rocm", "xpu", "unknown", "foreign", "none"]


@dataclass(frozen=True, slots=True)
class Device:
    """The device whose work the trace holds.

    kind            cuda | rocm | xpu; unknown: device work without a vendor's mark; foreign: an accelerator whose work
                    cannot be told apart; none: no device rows
    name            product name, "" where the trace is silent
    capability      (major, minor) of an NVIDIA device, None for every other and where unknown
    multiprocessors, memory_bytes   None where unknown
    count           distinct devices with work (not those that were merely visible)
    why             why device metrics are not measured, one sentence; "" if they are
    """

    kind: Kind
    name: str = ""
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    count: int = 0
    why: str = ""

    @property
    def measured(self) -> bool:
        """Whether the trace holds device work that can be accounted for."""
        return not self.why

    @classmethod
    def compute(cls, trace: Trace) -> Device:
        """The device of a trace; never Missing."""
        raise Missing("this analysis is not written yet")
