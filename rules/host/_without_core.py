"""How long the loop's thread did not run: somebody else had its core, or it slept."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Finding, Fix, Price, RankRecord, Scale, SideThreads, constant

from ..shared._words import percent

# It stood still for want of a core if that explains half of it; below a twentieth of all time, nine of ten scripts on a
# quiet machine have as much.
_HALF, _USUAL = 0.5, 0.05
# Of what makes un-profiled steps longer than the median, from here on it is waiting for a core that others have; of
# the median step itself from here on it is more than what a quiet machine showed in nine of ten scripts.
_WAITED, _WAITED_OF_STEP = 0.5, 0.05
# Of what a place takes: from here on it is the sleep that costs, and not what Python does.
_SLEEPS = 0.5
# Of its time the thread of a script without a sleep does not run so much, where it waits for no worker and no device.
_ORDINARY = constant("share.not_running").value
_AWAKE = Fix(
    "Leave out the sleep or the wait, or do it in a thread of its own",
    "exact",
    "optimizer.step()\ntime.sleep(0.02)",
    "optimizer.step()",
)


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


def asleep(found: Finding, price: Price, threads: SideThreads | None, record: RankRecord | None) -> Finding:
    """The finding with the time for which the loop's thread neither ran nor waited for a core, if that is most of it.

    Steps were timed without the profiler then, so this time needs no correction. Unchanged beside other threads of
    the script, workers or ranks, for which a loop may wait.
    """
    vitals, saving = record.vitals if record else None, found.saving
    if record is None or vitals is None or threads is None or saving is None or not vitals.timed_us:
        return found
    others = record.world_size > 1 or vitals.children or any(loader.num_workers for loader in record.loaders)
    if others or any(one.source for one in threads.threads):
        return found
    slept = threads.waiting_share - min((vitals.loop_queued_us or 0.0) / vitals.timed_us, 1.0)
    step_us = price.scale.step_us
    if slept < _ORDINARY or slept * step_us < _SLEEPS * saving.high_us:
        return found
    low_us = min(max(saving.low_us, (slept - _ORDINARY) * step_us), saving.high_us)
    return replace(
        found,
        message=f"{found.message[:-1]}; the loop's thread sleeps or waits for {percent(slept)} of its time.",
        saving=replace(saving, low_us=low_us, how=f"{saving.how}; low: that the thread slept, unless as much is usual"),
        fix=_AWAKE,
    )
