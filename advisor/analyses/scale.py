"""The scale of savings: the un-profiled step where capture timed it, else the profiled one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.analyses.steps import Steps
from advisor.capture.record import RankRecord, StepTimes
from advisor.model import Basis, Saving, Times


@dataclass(frozen=True, slots=True)
class Scale:
    """What one step takes, and how profiled times map to it.

    step_us      value of `step_time_us`: the un-profiled median, else the un-profiled mean, else the profiled median
    basis_note   which of them it is, for people
    factor       step_us / (|W| per step): profiled µs of a breakdown times this sum to step_us
    unprofiled   distribution of un-profiled steps; all None where not captured
    profiled     distribution of profiled steps
    """

    step_us: float
    basis_note: str
    factor: float
    unprofiled: Times
    profiled: Times

    def scaled(self, profiled_us: float) -> float:
        """Profiled µs per step on the scale of step_us, within [0, step_us]."""
        return min(max(profiled_us * self.factor, 0.0), self.step_us)

    def saving(self, low_us: float, high_us: float, how: str, basis: Basis = "modelled") -> Saving:
        """A saving given in profiled µs per step, brought to the scale of step_us and never above the step itself."""
        low, high = self.scaled(low_us), self.scaled(high_us)
        return Saving(min(low, high), max(low, high), basis, how)

    @classmethod
    def compute(cls, steps: Steps, record: RankRecord | None) -> Scale:
        """The scale of this trace."""
        profiled = distribution(steps.profiled_us)
        recorded = record.steps if record else StepTimes()
        unprofiled = distribution(recorded.unprofiled_us)
        if unprofiled.median is None and recorded.unprofiled_mean_us:
            unprofiled = Times(mean=recorded.unprofiled_mean_us, n=max(recorded.count, 1))
        if unprofiled.median:
            step_us, note = unprofiled.median, f"median of {unprofiled.n} steps without the profiler"
        elif unprofiled.mean:
            step_us, note = unprofiled.mean, "mean of the steps without the profiler"
        else:
            step_us, note = profiled.median or steps.step_us, f"median of {steps.count} profiled steps"
        return cls(step_us, note, step_us / steps.step_us, unprofiled, profiled)


def distribution(values_us: Sequence[float]) -> Times:
    """Mean, median and deciles of step times in µs; all None without values."""
    if not len(values_us):
        return Times()
    p10, median, p90 = (float(value) for value in np.percentile(np.asarray(values_us, float), (10, 50, 90)))
    return Times(float(np.mean(values_us)), median, p10, p90, len(values_us))
