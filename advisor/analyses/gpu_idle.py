"""Why the device idles: every gap with its cause, by what the host did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.analyses.gpu_busy import GpuBusy
from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals

Cause = Literal["idle_input", "idle_sync", "idle_launch", "idle_host", "idle_unknown"]
CAUSES: tuple[Cause, ...] = ("idle_input", "idle_sync", "idle_launch", "idle_host", "idle_unknown")


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of device idleness with one cause; a longer gap with several causes is several of these.

    after, before  names of the device work before and after the whole gap, "" at the ends of the trace
    host           the op, call or function that ran on the host for most of it, "" where none was recorded
    where          the user's code that ran meanwhile
    """

    start_ns: int
    end_ns: int
    cause: Cause
    after: str = ""
    before: str = ""
    host: str = ""
    where: Source | None = None

    @property
    def us(self) -> float:
        """Length in µs."""
        return (self.end_ns - self.start_ns) / 1e3


@dataclass(frozen=True, slots=True)
class IdleGroup:
    """Gaps of one cause that share host work and source line; µs and gaps per step."""

    host: str
    where: Source | None
    us: float
    gaps_per_step: float


@dataclass(frozen=True, slots=True, eq=False)
class GpuIdle:
    """W minus device work, each instant with one cause, decided by evidence in this order:

    idle_input    the loop's thread stands in a fetch from its loader
    idle_sync     the queue drained in a blocking host call that really waited; lasts until the next device work, except
                  for stretches of a millisecond or more in which the host did work of its own
    idle_host     the host did something else than launching: a stretch of 100 µs or more without op or runtime call,
                  or an op of a millisecond or more that launched nothing
    idle_launch   the host was on its way to the next launch, op by op, and the device had nothing queued
    idle_unknown  everything else: the next work was queued already, or the trace holds no host rows there

    gaps          one Gap per stretch of one cause, in order
    intervals     cause -> Intervals; disjoint, their union is W minus busy
    by_cause_us   cause -> µs per step (all five keys)
    share         idle time / |W|: the metric device_idle_share
    """

    gaps: tuple[Gap, ...]
    intervals: dict[str, Intervals]
    by_cause_us: dict[str, float]
    share: float
    steps_count: int

    def top(self, cause: str, n: int = 5) -> tuple[IdleGroup, ...]:
        """The largest groups of gaps of one cause, by host work and line."""
        groups: dict[tuple[str, Source | None], list[float]] = {}
        for gap in self.gaps:
            if gap.cause == cause:
                groups.setdefault((gap.host, gap.where), []).append(gap.us)
        rows = [
            IdleGroup(host, where, sum(us) / self.steps_count, len(us) / self.steps_count)
            for (host, where), us in groups.items()
        ]
        return tuple(sorted(rows, key=lambda row: -row.us)[:n])

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, busy: GpuBusy) -> GpuIdle:
        """Idle time by cause. Missing without device work."""
        raise Missing("this analysis is not written yet")
