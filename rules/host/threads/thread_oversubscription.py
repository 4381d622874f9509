"""Threads and loader workers compete for too few cores.

## What it looks at
The threads that want to run at once (intra-op threads of every rank, plus every loader worker) against the cores
that the job may use, and the step times that were measured without the profiler: how much slower an ordinary step is
than the fastest 10 %, how long the tail is, which CPU time the workers need, and how long the threads of the loop
waited for a core.

## Why it costs time
A parallel op waits for its slowest thread. When a loader worker has taken that thread's core, all others wait until
the operating system gives it back, which takes milliseconds: as long as many small steps. More threads than cores have
the same effect without any worker: three on two cores took a third to two thirds of the step, sixteen took four fifths
and more.

## How to fix it
Leave a core for each worker: `torch.set_num_threads(max(1, cores - workers))`, or `OMP_NUM_THREADS` in the
environment, per rank. With several ranks on a host, divide the cores among them. Fewer workers help as well, where
batches are cheap to load.

## When to leave it
Step times that are even although there are more threads than cores: workers that sleep most of the time do no harm.
Fewer threads take longer for ops that are split, while the CPU time of workers and ops stays: nothing is reported where
that may be all, nor where steps differ as much by chance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    Breakdown,
    Finding,
    Fix,
    Loader,
    LoaderFacts,
    OpRow,
    Ops,
    Price,
    RankRecord,
    Saving,
    Scale,
    Settings,
    ThreadUse,
    Times,
    Treatment,
    constant,
    duration,
)

from ...shared._batches import respawned
from ...shared._places import set_at, workers_at
from ...shared._words import percent, plural
from ._shared_cores import SharedCores
from ._thread_examples import OF_THREADS

CONFIRMED = "measured pairs: a small CNN on two cores with two workers, batch 4 to 256, two threads against one"

# Least share of median less fast tenth that fewer threads give back.
_SEEN_RECOVERED = constant("share.oversubscribed").value
# A smaller share of the step, beyond the noise between steps, could not be seen after the change.
_FELT = 0.05

# More threads than cores, measured on two cores for three models: what the threads above the cores' number took of the
# step, least and most, by threads per core. Between these by the logarithm; beyond, the last.
_TAKEN = {
    1.5: constant("threads.one_and_a_half").range,
    2.0: constant("threads.two").range,
    4.0: constant("threads.four").range,
    8.0: constant("threads.eight").range,
}
# Workers that need less than a tenth of a core together sleep nearly always.
_AT_WORK = 0.1
# An op has to take this long on one thread before sharing it pays for waking the others.
_LONG_OP_US = constant("calls.shared_op_us").value
_THREADS = ("threads", "OMP_NUM_THREADS", "MKL_NUM_THREADS")  # of `Settings.set_at`
_OPS = ("forward", "backward", "optimizer", "other_ops")
_HOW = (
    "the mean step, whose threads and workers do the same work without taking cores from each other, ops split in "
    "fewer parts; high: the loop spun while another thread of an op had no core; low: it never did"
)
# Beside a device most ops only launch. With less of the step than a tenth in ops that threads of the host can share, no
# thread that waits for another explains uneven steps.
_SHARED = 0.1


def check(
    use: ThreadUse,
    price: Price,
    ops: Ops,
    loader: LoaderFacts | None,
    record: RankRecord | None,
    *,
    min_spread: float = 1.2,  # p90 / median: 1.08 to 1.12 in measured runs with room, 1.26 to 1.76 without
    min_tail: float = 1.1,  # mean / median: above, throughput is visibly lower than the typical step suggests
) -> Iterator[Finding]:
    scale, breakdown = price.scale, price.breakdown
    if use.wanted <= use.cores or use.threads <= 1:
        return
    if use.ranks == 1 and use.threads > use.cores and not price.on_device:
        yield _too_many(use, scale, ops, breakdown, record.settings if record else None)
        return
    if price.on_device and sum(row.share for row in _shareable(ops)) < _SHARED:
        return
    if _other_cause(use, loader, scale, record):
        return
    if use.ranks * use.threads <= use.cores:
        yield from _beside_workers(use, price, ops, loader, record)
    elif (saving := _between_ranks(use, scale, min_spread, min_tail)) is not None:
        yield _finding(use, scale.unprofiled, saving, loader, record)


def _between_ranks(use: ThreadUse, scale: Scale, min_spread: float, min_tail: float) -> Saving | None:
    """What ranks whose threads need more cores than there are take from each other."""
    times = scale.unprofiled
    if use.mean_to_median is None or use.p90_to_median is None or not (times.median and times.mean and times.p10):
        return None
    spread_us = max(times.median - times.p10, 0.0)
    felt = _SEEN_RECOVERED * spread_us >= (_FELT + (scale.repeats or 0.0)) * scale.step_us
    if (use.p90_to_median < min_spread and use.mean_to_median < min_tail) or not felt:
        return None
    return Saving(
        min(_SEEN_RECOVERED * spread_us, scale.step_us),
        min(spread_us, scale.step_us),
        "modelled",
        "high: an ordinary step becomes as fast as the fastest 10 %; low: half of that, the least measured",
    )


def _beside_workers(
    use: ThreadUse, price: Price, ops: Ops, loader: LoaderFacts | None, record: RankRecord | None
) -> Iterator[Finding]:
    """Threads that have cores enough but for the loader workers."""
    times, scale = price.scale.unprofiled, price.scale
    shared = _shared_cores(use, price, ops, loader, record)
    if shared is None:
        return
    least, most = shared.given_back(_fewer(use))
    if most < _FELT + (scale.repeats or 0.0):
        return
    saving = Saving(max(least, 0.0) * scale.step_us, most * scale.step_us, "modelled", _HOW)
    yield _finding(use, times, saving, loader, record)


def _shared_cores(
    use: ThreadUse, price: Price, ops: Ops, loader: LoaderFacts | None, record: RankRecord | None
) -> SharedCores | None:
    """What this rank's loop and workers do; None where that was not recorded."""
    times, vitals = price.scale.unprofiled, record.vitals if record else None
    busy = _worker_cores(loader.loader, record, price.scale) if loader else None
    if vitals is None or busy is None or not times.mean or not times.p10 or not vitals.timed_us:
        return None
    each = times.mean / vitals.timed_us  # µs of the timed steps to µs of the mean one
    if vitals.loop_cpu_us is None or vitals.loop_queued_us is None or vitals.pool_queued_us is None:
        return None
    missed_us = each * vitals.pool_queued_us
    return SharedCores(
        step_us=times.mean,
        fast_us=times.p10,
        loop_us=each * vitals.loop_cpu_us,
        missed_us=missed_us,
        waited_us=min(missed_us + each * vitals.loop_queued_us, times.mean),
        workers_us=busy * times.mean,
        split=min(sum(row.share for row in _shareable(ops)), 1.0),
        threads=use.threads,
        workers=use.workers,
        cores=max(1, use.cores // use.ranks),
    )


def _fewer(use: ThreadUse) -> int:
    """Threads of a rank that leave a core to each of its workers."""
    return max(1, (use.cores - use.ranks * use.workers) // use.ranks)


def _finding(
    use: ThreadUse, times: Times, saving: Saving, loader: LoaderFacts | None, record: RankRecord | None
) -> Finding:
    threads = _fewer(use)
    return Finding(
        message=_message(use, times),
        saving=saving,
        where=set_at(record.settings if record else None, *_THREADS)
        or (workers_at(loader.loader) if loader and use.workers else ()),
        facts={
            "cores": use.cores,
            "threads": use.threads,
            "workers": use.workers,
            "ranks": use.ranks,
            "wanted": use.wanted,
            "median_us": times.median,
            "mean_us": times.mean,
            "p10_us": times.p10,
            "p90_us": times.p90,
        },
        fix=Fix(
            f"Use {plural(threads, 'thread')}{' per rank' if use.ranks > 1 else ''}, to leave cores for loader workers",
            "numerics",
            "",
            f"torch.set_num_threads({threads})  # right after `import torch`; or start with OMP_NUM_THREADS={threads}",
            Treatment("threads", {"count": threads}),
        ),
    )


def _other_cause(use: ThreadUse, loader: LoaderFacts | None, scale: Scale, record: RankRecord | None) -> bool:
    """Whether uneven steps have nothing to do with threads: the workers sleep, or new ones start with each epoch."""
    facts = loader.loader if loader else None
    if use.ranks * use.threads > use.cores or facts is None:
        return False
    if record and respawned(facts, scale, record.steps) is not None:
        return True
    cores = _worker_cores(facts, record, scale)
    return cores is not None and cores < _AT_WORK


def _worker_cores(facts: Loader, record: RankRecord | None, scale: Scale) -> float | None:
    """How many cores the workers take together: by their CPU time, else by what a batch takes; None if unknown."""
    vitals = record.vitals if record else None
    if vitals and vitals.timed_us and vitals.children and vitals.children_cpu_us is not None:
        return vitals.children_cpu_us / vitals.timed_us
    if facts.sample_us is not None and facts.batch_size:
        return (facts.batch_size * facts.sample_us + (facts.collate_us or 0.0)) / scale.step_us
    return None


def _shareable(ops: Ops) -> list[OpRow]:
    """Ops that are long enough to be split over threads."""
    return [row for row in ops.top if row.calls and row.us / row.calls >= _LONG_OP_US]


def _too_many(use: ThreadUse, scale: Scale, ops: Ops, breakdown: Breakdown, settings: Settings | None) -> Finding:
    """One process with more threads than it may use cores."""
    ops_us = sum(breakdown.us(name) for name in _OPS)
    split_us = min(ops_us, sum(row.us for row in _shareable(ops)))
    crowd = np.log(list(_TAKEN))
    least, most = (
        float(np.interp(np.log(use.threads / use.cores), crowd, [taken[end] for taken in _TAKEN.values()]))
        for end in (0, 1)
    )
    threads = max(1, use.cores - use.workers)
    return Finding(
        message=(
            f"{use.threads} threads share {plural(use.cores, 'core')} and wait for each other in every parallel op; "
            f"ops take {percent(scale.scaled(ops_us) / scale.step_us)} of the step."
        ),
        saving=scale.saving(
            least * split_us,
            most * ops_us,
            "what as many threads per core cost in measurements of three models; low: for ops long enough to be split",
        ),
        where=set_at(settings, *_THREADS),
        facts={"cores": use.cores, "threads": use.threads, "workers": use.workers},
        fix=Fix(
            f"Use {plural(threads, 'thread')}",
            "numerics",
            f"torch.set_num_threads({use.threads})  # or OMP_NUM_THREADS={use.threads}",
            f"torch.set_num_threads({threads})  # or leave it out: the default is one per core",
            Treatment("threads", {"count": threads}),
        ),
        claims=_OPS,
    )


def _message(use: ThreadUse, times: Times) -> str:
    median_us, mean_us = times.median or 0.0, times.mean or 0.0
    workers = f" and {plural(use.workers, 'loader worker')}" if use.workers else ""
    ranks = f" on each of {use.ranks} ranks" if use.ranks > 1 else ""
    said = f"{plural(use.threads, 'thread')}{workers}{ranks} share {plural(use.cores, 'core')}"
    uneven = f"one step in ten takes more than {duration(times.p90 or median_us)}, the median {duration(median_us)}"
    if mean_us >= 1.1 * median_us:
        uneven += f", the mean {duration(mean_us)}"
    return f"{said}: {uneven}."


EXAMPLES = OF_THREADS
