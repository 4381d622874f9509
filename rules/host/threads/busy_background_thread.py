"""A background thread competes with the training loop for the GIL.

## What it looks at
CPU time of the script's own Python threads during steps that were timed without the profiler, and how long the training
loop's thread did not run in that time. Threads that block (on a queue, an event, a timer) use next to none; of threads
that libraries start, only those are reported that are known to poll.

## Why it costs time
Only one thread at a time can hold Python's global interpreter lock (GIL). A thread that polls, counts or formats
acquires it repeatedly, and each time the training loop wants to run its next op it waits for the lock, up to 5 ms each
time. Where ops use all cores, the thread also takes a core from them, and the other threads of an op wait for the one
that lost its core.

## How to fix it
Let the thread block instead of polling: `event.wait(timeout=0.5)`, `queue.get()`, `time.sleep(0.1)`. Move work that is
needed to a separate process, or to the DataLoader's workers.

## When to leave it
Threads that spend their CPU time in native code that releases the GIL (decompression, large NumPy calls), on cores
that ops leave free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    Device,
    Example,
    Finding,
    Fix,
    RankRecord,
    Saving,
    Scale,
    SideThread,
    SideThreads,
    Source,
    constant,
)

from ...shared._examples import STEPS_ON_CPU
from ...shared._places import object_of, place, set_at
from ...shared._side_effect_factors import THREAD_SIDE_EFFECTS
from ...shared._words import percent, plural

CONFIRMED = "measured pair on a CPU: a progress display that polls without a pause against one that sleeps"

# Part of what the interpreter's lock can explain that surely goes.
_SURE = constant("share.lock_held").value
# Cores count as full from a quarter of a core below their number on: the loop's own pauses leave that much.
_FREE_CORES = 0.25
# A step keeps at least a twentieth of itself, whatever its neighbour did.
_MOST = 0.95


def check(
    threads: SideThreads,
    record: RankRecord,
    device: Device,
    scale: Scale,
    *,
    min_share: float = 0.05,  # CPU time of the thread over wall time; one that polls ten times a second stays below 1 %
) -> Iterator[Finding]:
    own = [one for one in threads.threads if one.source and one.cpu_share >= min_share]
    if not own:
        yield from _of_libraries(threads, record, device, scale, min_share)
        return
    busy = sum(one.cpu_share for one in own)
    saving = _saving(busy, threads, record, device, scale)
    worst = own[0]
    several = f" and {plural(len(own) - 1, 'other thread')}" if len(own) > 1 else ""
    yield Finding(
        message=(
            f"The thread that runs `{worst.source.function if worst.source else worst.name}`{several} uses "
            f"{percent(busy)} of a core{_place(worst)} while the training loop runs; the training loop's thread was "
            f"not running for {percent(threads.waiting_share)} of the time."
        ),
        saving=saving,
        where=tuple(at for one in own if one.source for at in (*_lines(one), *object_of(one.source, record))),
        facts={"cpu_share": busy, "loop_waiting_share": threads.waiting_share, "cores_used": threads.cores_used},
        fix=Fix(
            "Block instead of polling, or move the work to another process",
            "exact",
            "while not done:\n    if progress != shown:\n        show(progress)",
            "while not done.wait(timeout=0.5):  # a threading.Event\n    if progress != shown:\n        show(progress)",
        ),
    )


def _of_libraries(
    threads: SideThreads, record: RankRecord, device: Device, scale: Scale, min_share: float
) -> Iterator[Finding]:
    """Threads that libraries started and that are known to ask without a rest, as long as a setting is on."""
    for thread in threads.threads:
        setting, fix = next((known for name, known in _POLLING.items() if name in thread.name), ("", None))
        if fix is None or thread.cpu_share < min_share:
            continue
        yield Finding(
            message=(
                f"The thread `{thread.name}` of a library uses {percent(thread.cpu_share)} of a core while the "
                "training loop runs; the training loop's thread was not running for "
                f"{percent(threads.waiting_share)} of the time."
            ),
            saving=_saving(thread.cpu_share, threads, record, device, scale),
            where=set_at(record.settings, setting),
            facts={"cpu_share": thread.cpu_share, "loop_waiting_share": threads.waiting_share},
            fix=fix,
        )


# What a library's thread runs -> the setting that starts it, and how to leave it out (transformers/trainer_utils.py,
# TrainerMemoryTracker: it asks for the memory of the process in a loop without a pause).
_POLLING = {
    "peak_monitor_func": (
        "memory_metrics",
        Fix(
            "Leave `skip_memory_metrics` at its default of True",
            "exact",
            "TrainingArguments(..., skip_memory_metrics=False)",
            "TrainingArguments(...)",
        ),
    )
}


def _saving(busy: float, threads: SideThreads, record: RankRecord, device: Device, scale: Scale) -> Saving:
    """From the thread's part of the time in which it or the loop ran, and from how long the loop stood still."""
    taken = busy / (busy + threads.loop_share)
    cores = record.settings.cores
    crowded = bool(cores) and threads.cores_used >= (cores or 0) - _FREE_CORES
    workers = any(loader.num_workers for loader in record.loaders)
    if crowded:
        low, high = _SURE * taken, THREAD_SIDE_EFFECTS * (taken + threads.waiting_share)
        how = "low: half of the thread's share of CPU time; high: all of it plus the loop's waiting; all cores are busy"
    else:
        high = min(threads.waiting_share, THREAD_SIDE_EFFECTS * taken)
        # The loop waits for workers and for a device, too.
        low = 0.0 if workers or device.kind != "none" else _SURE * high
        how = "the loop's waiting, as far as the thread's CPU time explains it: half of it to all of it"
    high = min(high, _MOST)
    return Saving(min(low, high) * scale.step_us, high * scale.step_us, "modelled", how)


def _place(thread: SideThread) -> str:
    return place(thread.now or thread.source)


def _lines(thread: SideThread) -> tuple[Source, ...]:
    """What the thread ran, then the function that it runs."""
    return tuple(one for one in (thread.now, thread.source) if one is not None)


def _facts(cpu_us: float, loop_us: float, process_us: float, file: str = "train.py", cores: int = 4) -> dict[str, Any]:
    thread = {"name": "Thread-1", "cpu_us": cpu_us, "file": file, "line": 12, "function": "display"}
    vitals = {"timed_steps": 100, "timed_us": 1e6, "loop_cpu_us": loop_us, "process_cpu_us": process_us}
    return {
        "steps": {"unprofiled_us": [10_000.0] * 20},
        "settings": {"cores": cores},
        "vitals": vitals | {"threads": [thread]},
    }


def _of_a_library(name: str) -> dict[str, Any]:
    facts = _facts(700_000.0, 550_000.0, 1_950_000.0, cores=2)
    facts["vitals"]["threads"] = [{"name": name, "cpu_us": 700_000.0}]
    facts["settings"]["set_at"] = {"memory_metrics": {"file": "train.py", "line": 9}}
    return facts


EXAMPLES = [
    Example(
        "the Trainer of Transformers measures memory",
        STEPS_ON_CPU,
        facts=_of_a_library("Thread-2 (peak_monitor_func)"),
        saves_us=(2500, 9600),
        says=("peak_monitor_func", "70 % of a core"),
        fixes=("skip_memory_metrics",),
    ),
    Example(
        "a library's thread that does what it is for",
        STEPS_ON_CPU,
        facts=_of_a_library("Thread-2 (_pin_memory_loop)"),
        near_miss=True,
    ),
    Example(
        "a display that asks without a pause",
        STEPS_ON_CPU,
        facts=_facts(300_000.0, 650_000.0, 1_000_000.0),
        saves_us=(1700, 3500),
        says=("`display`", "30 % of a core", "not running for 35 %"),
    ),
    Example(
        "the same where the ops fill both cores",
        STEPS_ON_CPU,
        facts=_facts(230_000.0, 850_000.0, 1_940_000.0, cores=2),
        saves_us=(1000, 4400),
    ),
    Example(
        "a thread of a library", STEPS_ON_CPU, facts=_facts(300_000.0, 650_000.0, 1_000_000.0, file=""), near_miss=True
    ),
    Example(
        "a display that looks twenty times a second",
        STEPS_ON_CPU,
        facts=_facts(2_000.0, 990_000.0, 1_000_000.0),
        near_miss=True,
    ),
    Example(
        "no thread beside the loop",
        STEPS_ON_CPU,
        facts={"vitals": {"timed_us": 1e6, "loop_cpu_us": 9e5, "threads": []}},
    ),
    Example("a bare trace does not tell", STEPS_ON_CPU, near_miss=True, skipped="not captured by `advisor run`"),
]
