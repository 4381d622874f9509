"""What host rows cost a device: the work that they launch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import Links, Nesting, Steps, Trace


def launched_us(trace: Trace, steps: Steps, nesting: Nesting, links: Links, rows: npt.NDArray[np.int64]) -> float:
    """Device time of what these host rows, and what is inside them, launched in the window, µs per step."""
    chosen = np.zeros(len(trace.events), bool)
    chosen[rows] = True
    inside = nesting.ancestor(chosen) >= 0
    mine = trace.device_work & (links.launch >= 0) & (links.step >= 0) & inside[np.maximum(links.launch, 0)]
    return steps.per_step_us(float(trace.events.dur_ns[mine].sum()))
