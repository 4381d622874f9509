"""Counts that do not depend on the machine's speed."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.trace.events import Trace


@dataclass(frozen=True, slots=True)
class Counters:
    """Per step; None where it was not measured, with the reason in `why[name]`.

    device_allocs   cudaMalloc/hipMalloc calls of any flavour
    collectives     collectives started
    recompiles      torch.compile compilations in W
    """

    device_allocs: float | None
    collectives: float | None
    recompiles: float | None
    why: dict[str, str]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> Counters:
        """Counters of this rank."""
        raise Missing("this analysis is not written yet")
