"""Python that does not run: the loop's thread sleeps, as it does in `time.sleep` and in waits for other processes."""

from __future__ import annotations

from dataclasses import replace

from advisor.api import Finding, Fix, Price, RankRecord, SideThreads, constant

from ..shared._words import percent

# Of what a place takes: from here on it is the sleep that costs, and not what Python does.
_MOSTLY = 0.5
# Of its time the thread of a script without a sleep does not run so much, where it waits for no worker and no device.
_USUAL = constant("share.not_running").value
_AWAKE = Fix(
    "Leave out the sleep or the wait, or do it in a thread of its own",
    "exact",
    "optimizer.step()\ntime.sleep(0.02)",
    "optimizer.step()",
)


def asleep(found: Finding, price: Price, threads: SideThreads | None, record: RankRecord | None) -> Finding:
    """The finding with the time for which the loop's thread neither ran nor waited for a core, if that is most of it.

    Steps were timed without the profiler then, so that this time is told as it is. Unchanged beside other threads of
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
    if slept < _USUAL or slept * step_us < _MOSTLY * saving.high_us:
        return found
    low_us = min(max(saving.low_us, (slept - _USUAL) * step_us), saving.high_us)
    return replace(
        found,
        message=f"{found.message[:-1]}; the loop's thread sleeps or waits for {percent(slept)} of its time.",
        saving=replace(saving, low_us=low_us, how=f"{saving.how}; low: that the thread slept, unless as much is usual"),
        fix=_AWAKE,
    )
