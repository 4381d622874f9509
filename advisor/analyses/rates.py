"""Throughput."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.scale import Scale
from advisor.computed import Missing


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast samples are processed.

    samples_per_second   batch size / mean step time (un-profiled where captured); None where the batch size is unknown
    mfu                  model FLOPs per second over the device's peak; None where either is unknown
    why                  reason by name for those that are None
    """

    samples_per_second: float | None
    mfu: float | None
    why: dict[str, str]

    @classmethod
    def compute(cls, scale: Scale) -> Rates:
        """Rates of this rank."""
        raise Missing("this analysis is not written yet")
