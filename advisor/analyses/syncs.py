"""Host calls that block until the device has caught up."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Trace


@dataclass(frozen=True, slots=True)
class SyncSite:
    """Blocking calls of one origin, per step.

    op             the op or call that the user wrote (`aten::item`, `aten::copy_`, `cudaDeviceSynchronize` …)
    calls          per step
    us             time that the host stood in them, µs per step
    idle_after_us  device idle from the drained queue to the next device work, µs per step: what the sync costs
    where          the user's line, where known
    from_user      False for syncs that the framework makes on its own account (profiler, DDP, data loader)
    """

    op: str
    calls: float
    us: float
    idle_after_us: float
    where: Source | None = None
    from_user: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Syncs:
    """Blocking host calls in W, except the profiler's own.

    count   per step
    us      time blocked, µs per step
    sites   by op and line, those with the most idle after them first, then by time blocked
    """

    count: float
    us: float
    sites: tuple[SyncSite, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> Syncs:
        """Syncs of this rank; Missing where the trace holds no runtime calls."""
        raise Missing("this analysis is not written yet")
