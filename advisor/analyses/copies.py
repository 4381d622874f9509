"""Copies between host and device."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.gpu_busy import GpuBusy
from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals


@dataclass(frozen=True, slots=True)
class CopySite:
    """Host-device copies of one origin, per step.

    op          the op that copied (`aten::to`, `aten::copy_` …)
    calls, bytes, us   per step; us is the copies' time on the device; bytes None where the trace is silent
    blocked_us  time that the host stood in the copy calls
    pinned      page-locked host memory; None where the trace does not say
    to_device   H2D (True) or D2H (False)
    where       the user's line, where known
    """

    op: str
    calls: float
    us: float
    blocked_us: float
    bytes: float | None
    pinned: bool | None
    to_device: bool
    where: Source | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Device memory copies in W, per step.

    calls               all device memcpy events
    h2d_bytes, h2d_us   host to device; bytes None where the trace states none
    h2d_pageable_bytes  those from pageable memory; None where unknown (ROCm does not tell)
    pageable_us, pageable_calls   the same copies' device time and number
    d2h_bytes, d2h_us   device to host
    exposed             copies minus all kernels, in W
    exposed_us          µs per step;  exposed_share: of |W|
    blocking            host-device copies whose call kept the host until the data had moved, most blocked time first
    """

    calls: float
    h2d_bytes: float | None
    h2d_pageable_bytes: float | None
    d2h_bytes: float | None
    h2d_us: float
    d2h_us: float
    pageable_us: float | None
    pageable_calls: float | None
    exposed: Intervals
    exposed_us: float
    exposed_share: float
    blocking: tuple[CopySite, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, busy: GpuBusy) -> Copies:
        """Copies of this rank; zero where there are none. Missing without device work."""
        raise Missing("this analysis is not written yet")
