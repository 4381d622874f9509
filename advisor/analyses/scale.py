"""The scale of savings: the un-profiled step where capture timed it, else the profiled one."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.capture.record import RankRecord
from advisor.computed import Missing
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
        raise Missing("this analysis is not written yet")
