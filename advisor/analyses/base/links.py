"""Which host call started which device work, and the step that it counts to."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.launched import Launched
from advisor.analyses.base.steps import Steps
from advisor.trace.events import Ints, Mask, Numbers, Trace


class Links(Struct, frozen=True, eq=False):
    """Launches of device work, by correlation (any runtime or driver call; one call may start many kernels).

    launch  index of the call that launched each device event, -1 if the trace has none (and for other events)
    before  device work that was launched before the recording began (`Launched.before`)
    step    step of every event: that of its launch for device work, else of its start; -1 outside the window
    inside  which events belong to a step; not to be written to
    works   device work of the steps whose launch the trace holds, by start
    """

    launch: Numbers
    before: Mask
    step: Numbers
    inside: Mask
    works: Ints

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, launched: Launched) -> Links:
        """Links of a trace."""
        events = trace.events
        launch = launched.launch
        step = steps.step_of(events.start_ns).copy()
        linked = np.flatnonzero(launch >= 0)
        step[linked] = step[launch[linked]]  # a launch is of the host, so nothing above has changed its step
        inside = step >= 0
        inside.setflags(write=False)
        return cls(launch, launched.before, step, inside, linked[inside[linked]])

    @property
    def calls(self) -> Ints:
        """The calls that launched something, by start."""
        known = np.zeros(len(self.launch), bool)
        known[self.launch[self.launch >= 0]] = True
        return np.flatnonzero(known)

    def per_step(self, rows: Mask, steps: Steps) -> float:
        """How many of these events belong to steps, per step."""
        return float((rows & self.inside).sum()) / steps.count
