"""The mean time of a step, which throughput follows."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.scale import Scale
from advisor.analyses.base.watched_run import WatchedRun


class MeanStep(Struct, frozen=True):
    """The mean step, un-profiled where captured: a tail of slow steps costs samples, too.

    us   of all training steps of the run where it was watched and has more of them than were timed one by one, without
         what else the loop does between them (evaluations, checkpoints): a single long one among twenty timed steps
         would say that every step is as slow as ten
    """

    us: float

    @classmethod
    def compute(cls, scale: Scale, watched: WatchedRun | None) -> MeanStep:
        """Of this rank."""
        known = scale.unprofiled.mean or scale.unprofiled.median or scale.profiled.mean or scale.step_us
        if watched is None or watched.steps <= scale.unprofiled.n:
            return cls(known)
        return cls(watched.per_step_us("training") or known)
