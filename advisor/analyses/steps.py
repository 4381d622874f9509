"""The iterations of the training loop inside a trace, and the window that every share refers to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.model import StepSource
from advisor.trace.events import Ints, Trace
from advisor.trace.intervals import Intervals, total


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Whole steps (the `ProfilerStep#N` rows of the CPU) and the window W that they span.

    spans        (n, 2) start and end of each step, ns, in order
    labels       the name of each step
    window       W: from the start of the first step to the end of the last; steps further apart than a median step
                 belong to separate windows, and W is their union. Without steps: from the start of the first CPU op or
                 device work to the end of the last, as one step
    source       what marked the steps: user | loader | optimizer | window
    count        number of steps, at least 1
    eval_count   segments without a backward that capture saw; in no training figure
    main_thread  index into `events.threads` of the thread that runs the loop
    profiled_us  duration of each step, µs
    """

    spans: Intervals
    labels: tuple[str, ...]
    window: Intervals
    source: StepSource
    count: int
    eval_count: int
    main_thread: int
    profiled_us: tuple[float, ...]

    @property
    def window_ns(self) -> int:
        """|W| in ns."""
        return total(self.window)

    @property
    def step_us(self) -> float:
        """|W| per step, µs: what the breakdown's µs sum to."""
        return self.window_ns / self.count / 1e3

    @property
    def median_index(self) -> int:
        """The step whose duration is the (lower) median: the one to draw."""
        order = np.argsort(np.asarray(self.profiled_us), kind="stable")
        return int(order[(len(order) - 1) // 2])

    def per_step_us(self, ns: float) -> float:
        """A total in ns as µs per step."""
        return ns / self.count / 1e3

    def step_of(self, time_ns: Ints) -> Ints:
        """The step that each instant belongs to; time between two steps of a window counts to the earlier; else -1."""
        inside_window = np.searchsorted(self.window[:, 0], time_ns, side="right") - 1
        inside = (inside_window >= 0) & (time_ns < self.window[np.maximum(inside_window, 0), 1])
        index = np.searchsorted(self.spans[:, 0], time_ns, side="right") - 1
        return np.where(inside, index, -1).astype(np.int64)

    @classmethod
    def compute(cls, trace: Trace, record: RankRecord | None) -> Steps:
        """Steps of a trace. Raises Missing for a trace without CPU ops and device work."""
        raise Missing("this analysis is not written yet")
