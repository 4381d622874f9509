"""NumPy's threads and torch's threads compete for cores.

## What it looks at
How long the training loop's thread, and the threads that torch's parallel ops wait for, waited for a core in the steps
that were timed without the profiler, how much CPU time the process used during that time, and how much of it the
threads of NumPy's OpenBLAS used. If the process itself filled all of its cores, its own threads kept the loop waiting:
those of OpenBLAS for no longer than they ran. The share of Python threads is a separate finding. Not reported with
loader workers, which also need a core.

## Why it costs time
OpenBLAS, which is part of NumPy's wheels, has one thread per core, in addition to those of torch. After a matrix
product, its threads spin for a while, waiting for the next one. Torch's parallel ops then run on busy cores, and each
op waits for its slowest thread: of two scripts with products in their collate functions, one took 33 to 55 ms a step
instead of 16, one 133 instead of 45 (two cores, torch 2.14).

## How to fix it
Give NumPy one thread: set `OPENBLAS_NUM_THREADS=1` before it is imported, or wrap its products in
`threadpoolctl.threadpool_limits(1, "blas")`. Or compute them with torch, which uses one thread pool for all ops.

## When to leave it
If most of the step is NumPy's own products, which need the cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import Example, Finding, Fix, Missing, Price, RankRecord, Saving

from ...shared._examples import STEPS_ON_CPU
from ...shared._words import percent, plural

# Of the CPU time of all cores: from here on it was the process's own threads that had them.
_OWN = 0.8


def check(
    price: Price,
    record: RankRecord | None,
    *,
    min_share: float = 0.1,  # of the steps, waiting for a core; on an idle machine nine of ten scripts have half of it
) -> Iterator[Finding]:
    vitals = record.vitals if record else None
    if record is None or vitals is None or not vitals.timed_us or vitals.loop_queued_us is None:
        return
    settings = record.settings
    cores, threads, theirs = settings.cores or 0, settings.threads or 0, settings.numpy_threads or 0
    if theirs < 2 or threads > cores or threads + theirs <= cores or any(one.num_workers for one in record.loaders):
        return
    python_us = sum(one.cpu_us for one in vitals.threads or ())
    loop_us = vitals.loop_queued_us - python_us
    share = (loop_us + (vitals.pool_queued_us or 0.0)) / vitals.timed_us
    own = (vitals.process_cpu_us or 0.0) / (vitals.timed_us * cores)
    if share < min_share or own < _OWN:
        return
    theirs_us = vitals.numpy_cpu_us
    if theirs_us is None:
        raise Missing(
            "which threads are NumPy's was not recorded; capture the script from its start with `advisor run`"
        )
    share = min(share, theirs_us / vitals.timed_us, 1.0)
    if share < min_share:
        return
    certain = min(max(loop_us, 0.0) / vitals.timed_us, share)
    yield Finding(
        message=(
            f"For {percent(share)} of the steps the training loop, or a thread of torch that it waits for, had no core "
            f"while threads of NumPy's OpenBLAS ran: this process itself used {percent(min(own, 1.0))} of "
            f"{plural(cores, 'core')}, with {plural(threads, 'thread')} of torch and {plural(theirs, 'thread')} of "
            f"NumPy's OpenBLAS, which spin for a while after each product."
        ),
        saving=_saving(price, certain, share, theirs),
        facts={
            "waited_share": share,
            "loop_waited_share": certain,
            "numpy_cpu_share": theirs_us / vitals.timed_us,
            "cores": cores,
            "threads": threads,
            "numpy_threads": theirs,
            "process_cores": own * cores,
        },
        fix=Fix("Give NumPy one thread", "numerics", "python train.py", "OPENBLAS_NUM_THREADS=1 python train.py"),
        claims=("forward", "backward", "optimizer", "other_ops", "host"),
    )


def _saving(price: Price, certain: float, share: float, theirs: int) -> Saving:
    """From the waits themselves, less what NumPy may take longer alone, to all of them.

    A thread of the pool may also wait while Python runs, when no op needs it.
    """
    scale, python_us = price.scale, price.deprofiled.python_us
    mean_us = max(scale.unprofiled.mean or 0.0, scale.step_us)
    of_pool_us = max((share - certain) * scale.step_us - python_us, 0.0)
    low_us = max(certain * scale.step_us + of_pool_us - (theirs - 1) * python_us, 0.0)
    high_us = max(mean_us - (scale.unprofiled.p10 or mean_us), share * scale.step_us, low_us)
    how = (
        "low: the waits for a core, minus the most that NumPy can take longer on one thread and what no op had to wait "
        "for; high: all of them, or every step as fast as the fastest 10 %"
    )
    return Saving(min(low_us, scale.step_us), min(high_us, scale.step_us), "measured", how)


def _facts(
    queued_s: float, process_s: float, numpy_threads: int | None = 2, cores: int = 2, **more: Any
) -> dict[str, Any]:
    """Two seconds of steps, of which the loop waited so long, and CPU time of the process in them."""
    return {
        "settings": {"cores": cores, "threads": 2, "numpy_threads": numpy_threads},
        "vitals": {
            "timed_steps": 30,
            "timed_us": 2e6,
            "loop_cpu_us": 1.2e6,
            "loop_queued_us": queued_s * 1e6,
            "process_cpu_us": process_s * 1e6,
            "numpy_cpu_us": 1.1e6,
        }
        | more,
        "steps": {"unprofiled_us": [10_000.0, 12_000.0, 60_000.0, 100_000.0, 20_000.0, 11_000.0] * 5},
    }


EXAMPLES = [
    Example(
        "products of NumPy in the loop, beside torch's threads",
        STEPS_ON_CPU,
        facts=_facts(0.7, 3.9),
        saves_us=(5000, 17_000),
        says=("35 %", "2 threads of NumPy's OpenBLAS"),
        fixes=("OPENBLAS_NUM_THREADS=1",),
    ),
    Example(
        "the loop's own thread has its core, torch's second one has none",
        STEPS_ON_CPU,
        facts=_facts(0.02, 3.9, pool_queued_us=9e5),
        saves_us=(0, 16_000),
        says=("46 %", "a thread of torch that it waits for"),
    ),
    Example(
        "NumPy's threads do nothing: others of torch have the cores",
        STEPS_ON_CPU,
        facts=_facts(0.7, 3.9, numpy_cpu_us=4e3),
        near_miss=True,
    ),
    Example(
        "which threads are NumPy's is not known",
        STEPS_ON_CPU,
        facts=_facts(0.7, 3.9, numpy_cpu_us=None),
        skipped="was not recorded",
    ),
    Example("another program has the cores", STEPS_ON_CPU, facts=_facts(0.7, 2.2), near_miss=True),
    Example(
        "a thread of the script's has the core",
        STEPS_ON_CPU,
        facts=_facts(0.7, 3.9, threads=[{"name": "Thread-1", "cpu_us": 6e5}]),
        near_miss=True,
    ),
    Example(
        "two loader workers", STEPS_ON_CPU, facts=_facts(0.7, 3.9) | {"loaders": [{"num_workers": 2}]}, near_miss=True
    ),
    Example("NumPy with one thread", STEPS_ON_CPU, facts=_facts(0.7, 3.9, 1), near_miss=True),
    Example("cores for all of them", STEPS_ON_CPU, facts=_facts(0.7, 7.9, 2, 4)),
    Example("NumPy without a product", STEPS_ON_CPU, facts=_facts(0.02, 3.9)),
    Example("a bare trace", STEPS_ON_CPU),
]
