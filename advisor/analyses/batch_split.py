"""What a larger batch would change: the step split into fixed and per-sample time."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.scale import Scale
from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.trace.events import Trace


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """Step time at batch size B as fixed + B × per_sample, as a range, on the scale of `Scale.step_us`.

    batch_size      samples per step
    fixed_us        (low, high): time of a step that stays when the batch grows
    per_sample_us   (low, high): time that each further sample adds; low goes with the high fixed time
    how             how the split was made, one sentence
    """

    batch_size: int
    fixed_us: tuple[float, float]
    per_sample_us: tuple[float, float]
    how: str

    def step_us(self, batch: int) -> tuple[float, float]:
        """(low, high) time of a step with that batch size, µs."""
        return (
            self.fixed_us[1] + batch * self.per_sample_us[0],
            self.fixed_us[0] + batch * self.per_sample_us[1],
        )

    def samples_per_second(self, batch: int) -> tuple[float, float]:
        """(low, high) throughput with that batch size."""
        low, high = self.step_us(batch)
        return batch / high * 1e6, batch / low * 1e6

    def saving_us(self, batch: int) -> tuple[float, float]:
        """(low, high) µs that the samples of one present step would take less within a batch of that size."""
        now = self.batch_size
        slow, fast = self.step_us(batch)[1], self.step_us(batch)[0]
        present_slow, present_fast = self.step_us(now)[1], self.step_us(now)[0]
        low = max(0.0, present_slow - slow * now / batch)
        high = max(0.0, present_fast - fast * now / batch)
        return min(low, high), max(low, high)

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, scale: Scale) -> BatchSplit:
        """The split. Raises Missing where the batch size is not known."""
        raise Missing("this analysis is not written yet")
