"""How long the loop was ready and had no core, where threads of the script's ran beside it."""

from __future__ import annotations

from advisor.api import RankRecord, SideThreads

# It stood still for want of a core if that explains half of it; below a twentieth of all time, nine of ten scripts on a
# quiet machine have as much.
_HALF, _USUAL = 0.5, 0.05


def without_core(record: RankRecord | None, threads: SideThreads | None) -> float:
    """Share of the un-profiled time; nothing where the loop stood still for another reason, as when it sleeps."""
    vitals = record.vitals if record else None
    if vitals is None or threads is None or not vitals.timed_us or not any(one.source for one in threads.threads):
        return 0.0
    queued = min((vitals.loop_queued_us or 0.0) / vitals.timed_us, 1.0)
    return queued if queued >= max(_HALF * threads.waiting_share, _USUAL) else 0.0
