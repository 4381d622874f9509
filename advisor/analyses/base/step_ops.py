"""The ops of the profiled steps: when they ran, what called them, what work on a device they launched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.analyses.base.device import Device
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.trace.events import Category, Events, Ints, Trace


@dataclass(frozen=True, slots=True, eq=False)
class StepOps:
    """A trace with what a look at its ops needs: steps, calls inside calls, launches, and the device."""

    trace: Trace
    steps: Steps
    nesting: Nesting
    links: Links
    device: Device

    @property
    def events(self) -> Events:
        """The rows of the trace."""
        return self.trace.events

    @property
    def outermost(self) -> Ints:
        """Rows of the ops of the loop's thread in the profiled steps that no other op is around, in order of start."""
        mine = self.events.of(Category.CPU_OP) & self.nesting.outermost & self.links.inside
        found: Ints = np.flatnonzero(mine & (self.events.thread == self.steps.main_thread))
        return found

    def launched(self, rows: Ints) -> Ints:
        """Rows of the device work that these host rows, and what is inside them, launched in the profiled steps."""
        chosen = np.zeros(len(self.events), bool)
        chosen[rows] = True
        inside = self.nesting.ancestor(chosen) >= 0
        launch = self.links.launch
        mine = self.trace.device_work & (launch >= 0) & self.links.inside & inside[np.maximum(launch, 0)]
        found: Ints = np.flatnonzero(mine)
        return found

    def device_us(self, rows: Ints) -> float:
        """Device time of what these host rows, and what is inside them, launched, µs per step."""
        return self.steps.per_step_us(float(self.events.dur_ns[self.launched(rows)].sum()))

    def us(self, rows: Ints) -> float:
        """Recorded time of these rows themselves, µs per step."""
        return self.steps.per_step_us(float(self.events.dur_ns[rows].sum()))

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting, links: Links, device: Device) -> StepOps:
        """The ops of a trace."""
        return cls(trace, steps, nesting, links, device)
