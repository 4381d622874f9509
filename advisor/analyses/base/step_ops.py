"""The ops of the profiled steps: when they ran, what called them, what work on a device they launched."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.device import Device
from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.trace.events import Events, Ints, Trace


class StepOps(Struct, frozen=True, eq=False):
    """A trace with what analyzing its ops needs: steps, nesting, launches, and the device.

    outermost  the outermost ops of the loop's thread in the profiled steps, in order of start
    longer  `GpuBusy.longer`: the factor by which device work counts for more in a profiled step than its recorded time,
            because the profiler lengthened the step but not that work; 1 without device work
    """

    trace: Trace
    steps: Steps
    nesting: Nesting
    links: Links
    device: Device
    outermost: Ints
    longer: float = 1.0

    @property
    def events(self) -> Events:
        """The events of the trace."""
        return self.trace.events

    def outermost_named(self, *names: str) -> Ints:
        """The outermost ops with exactly one of these names, in order of start."""
        return self.outermost[self.events.exactly(*names)[self.outermost]]

    def launched(self, rows: Ints) -> Ints:
        """The device work that these host events, and what is inside them, launched in the profiled steps."""
        chosen = np.zeros(len(self.events), bool)
        chosen[rows] = True
        inside = self.nesting.within(chosen)
        works = self.links.works
        return works.compress(inside.take(self.links.launch.take(works)))

    def device_us(self, rows: Ints) -> float:
        """Device time of what these host events, and what is inside them, launched, µs per profiled step."""
        return self.us(self.launched(rows))

    def us(self, rows: Ints) -> float:
        """Time of these events themselves, µs per profiled step: as recorded, for device work times `longer`.

        So `Scale.scaled` brings both to what they take without the profiler.
        """
        took_ns = self.events.dur_ns[rows]
        of_device_ns = float(took_ns[self.trace.device_work[rows]].sum())
        return self.steps.per_step_us(float(took_ns.sum()) + (self.longer - 1) * of_device_ns)

    @classmethod
    def compute(
        cls, trace: Trace, steps: Steps, nesting: Nesting, links: Links, device: Device, busy: GpuBusy | None
    ) -> StepOps:
        """The ops of a trace."""
        outermost = nesting.outermost & links.inside & (trace.events.thread == steps.main_thread)
        return cls(trace, steps, nesting, links, device, np.flatnonzero(outermost), busy.longer if busy else 1.0)
