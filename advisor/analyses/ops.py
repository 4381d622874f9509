"""CPU ops and kernels: how many, and which cost most."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import OpRow
from advisor.trace.events import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Ops:
    """Ops of W, per step.

    per_step      CPU ops on all threads
    top           CPU ops by self time (time in the op and in none of its children), most expensive first; share of |W|
    kernels       device work by name; share of device-busy time; empty without a device
    """

    per_step: float
    top: tuple[OpRow, ...]
    kernels: tuple[OpRow, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> Ops:
        """Ops of this rank."""
        raise Missing("this analysis is not written yet")
