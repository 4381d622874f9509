"""When the device works."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.device import Device
from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals


@dataclass(frozen=True, slots=True, eq=False)
class GpuBusy:
    """Device work (kernels, copies, memsets; linked to a launch or not; all streams) inside the window W.

    busy       union of all device work in W
    busy_ns    its length
    share      busy_ns / |W|: the share of time with at least one kernel, copy or memset running
    computing  union of the kernels that are no communication, in W
    copy       union of the memory copies, in W
    memset     union of the memsets, in W
    """

    busy: Intervals
    busy_ns: int
    share: float
    computing: Intervals
    copy: Intervals
    memset: Intervals

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, device: Device) -> GpuBusy:
        """Busy time. Raises Missing with the device's why where the trace holds no device work."""
        raise Missing("this analysis is not written yet")
