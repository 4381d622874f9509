"""Communication on the host: gloo and MPI on ranks without an accelerator."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals


@dataclass(frozen=True, slots=True, eq=False)
class HostCommunication:
    """Host-side collectives (gloo, MPI …) in W.

    spans    union of the collectives on any thread, in W
    us       µs per step
    calls    per step
    """

    spans: Intervals
    us: float
    calls: float

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> HostCommunication:
        """Host communication; zero where there is none."""
        raise Missing("this analysis is not written yet")
