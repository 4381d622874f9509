"""When the device works."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.classify import communication_rows
from advisor.analyses.base.device import Device
from advisor.analyses.base.scale import Scale
from advisor.analyses.base.steps import Steps
from advisor.computed import Missing
from advisor.trace.events import Category, Mask, Trace
from advisor.trace.intervals import Intervals, intersect, total


class GpuBusy(Struct, frozen=True, eq=False):
    """Device work (kernels, copies, memsets; linked to a launch or not; all streams) inside the window W.

    busy       union of all device work in W
    busy_ns    its length
    share      the share of time with at least one kernel, copy or memset running: busy_ns / |W|, or of the step without
               the profiler if that is known: the profiler slows the host, but no work of the device
    us         the same, µs per profiled step
    longer     share / (busy_ns / |W|): factor by which shares of work in W are larger without the profiler; at least 1
    rest       (1 - share) / (1 - busy_ns / |W|): the factor for shares of idle time
    computing  union of the kernels other than communication, in W
    talking    union of the communication kernels, in W
    copy       union of the memory copies, in W
    """

    busy: Intervals
    busy_ns: int
    share: float
    us: float
    longer: float
    rest: float
    computing: Intervals
    talking: Intervals
    copy: Intervals

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, device: Device, scale: Scale) -> GpuBusy:
        """Busy time. Raises Missing with the device's why if the trace has no device work."""
        if not device.measured:
            raise Missing(device.why)
        events = trace.events
        kernels = events.of(Category.KERNEL)
        talks = kernels & communication_rows(events)

        def within(rows: Mask) -> Intervals:
            return intersect(events.covered(rows), steps.window)

        busy = intersect(trace.busy, steps.window)
        recorded = total(busy) / steps.window_ns
        share = min(recorded * scale.stretched, 1.0)
        return cls(
            busy=busy,
            busy_ns=total(busy),
            share=share,
            us=share * steps.step_us,
            longer=share / recorded if recorded else 1.0,
            rest=(1 - share) / (1 - recorded) if recorded < 1 else 1.0,
            computing=within(kernels & ~talks),
            talking=within(talks),
            copy=within(events.of(Category.MEMCPY)),
        )
