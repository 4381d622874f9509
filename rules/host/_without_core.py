"""How long the loop was ready and had no core, because somebody else had it."""

from __future__ import annotations

from advisor.api import RankRecord, Scale, SideThreads

# It stood still for want of a core if that explains half of it; below a twentieth of all time, nine of ten scripts on a
# quiet machine have as much.
_HALF, _USUAL = 0.5, 0.05
# Of what makes un-profiled steps longer than the median, from here on it is waiting for a core that others have; of
# the median step itself from here on it is more than what a quiet machine showed in nine of ten scripts.
_WAITED, _WAITED_OF_STEP = 0.5, 0.05


def without_core(record: RankRecord | None, threads: SideThreads | None) -> float:
    """Share of the un-profiled time in which threads of the script's had the core.

    Nothing where the loop stood still for another reason, as when it sleeps.
    """
    vitals = record.vitals if record else None
    if vitals is None or threads is None or not vitals.timed_us or not any(one.source for one in threads.threads):
        return 0.0
    queued = min((vitals.loop_queued_us or 0.0) / vitals.timed_us, 1.0)
    return queued if queued >= max(_HALF * threads.waiting_share, _USUAL) else 0.0


def kept_waiting(record: RankRecord | None, scale: Scale) -> bool:
    """Whether un-profiled steps that are longer than most waited for a core: then so did those of the window."""
    vitals, times = record.vitals if record else None, scale.unprofiled
    if vitals is None or not vitals.loop_queued_us or not vitals.timed_steps or not times.mean or not times.median:
        return False
    queued_us = vitals.loop_queued_us / vitals.timed_steps
    return queued_us >= max(_WAITED * (times.mean - times.median), _WAITED_OF_STEP * times.median)
