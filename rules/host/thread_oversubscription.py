"""Threads and loader workers compete for too few cores.

## What it looks at
The threads that want to run at once (intra-op threads of every rank, plus every loader worker) against the cores
that the job may use, and the step times that were measured without the profiler: how much slower an ordinary step is
than the fastest 10 %, and how long the tail is.

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
This is not reported if the fastest steps are hardly faster than the ordinary one, or steps differ as much by chance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    NEXT_WORKERS,
    Breakdown,
    Ev,
    Example,
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
    Treatment,
    constant,
    draw,
    duration,
)

from ..shared._batches import respawned
from ..shared._places import set_at, workers_at
from ..shared._words import percent, plural

CONFIRMED = "measured pairs: a small CNN on two cores with two workers, batch 4 to 256, two threads against one"

# Least share of median less fast tenth that fewer threads give back.
_SEEN_RECOVERED = constant("share.oversubscribed").value
# Less of the step, beyond what steps differ by of their own, could not be seen after the change.
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
# With more than half a core, and a loop that waits a tenth of its time for them, they set the pace: fewer threads give
# nothing back.
_PACE, _WAITED = 0.5, 0.1
# An op has to take this long on one thread before sharing it pays for waking the others.
_LONG_OP_US = constant("calls.shared_op_us").value
_THREADS = ("threads", "OMP_NUM_THREADS", "MKL_NUM_THREADS")  # of `Settings.set_at`
_OPS = ("forward", "backward", "optimizer", "other_ops")
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
    if _other_cause(use, loader, scale, breakdown, record):
        return
    times = scale.unprofiled
    if use.mean_to_median is None or use.p90_to_median is None or not (times.median and times.mean and times.p10):
        return
    spread_us = max(times.median - times.p10, 0.0)
    felt = _SEEN_RECOVERED * spread_us >= (_FELT + (scale.repeats or 0.0)) * scale.step_us
    if (use.p90_to_median < min_spread and use.mean_to_median < min_tail) or not felt:
        return
    threads = max(1, (use.cores - use.ranks * use.workers) // use.ranks)
    yield Finding(
        message=_message(use, times.median, times.mean, times.p90 or times.median),
        saving=Saving(
            min(_SEEN_RECOVERED * spread_us, scale.step_us),
            min(spread_us, scale.step_us),
            "modelled",
            "high: an ordinary step becomes as fast as the fastest 10 %; low: half of that, the least measured",
        ),
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
            "exact",
            "",
            f"torch.set_num_threads({threads})  # right after `import torch`; or start with OMP_NUM_THREADS={threads}",
            Treatment("threads", {"count": threads}),
        ),
    )


def _other_cause(
    use: ThreadUse, loader: LoaderFacts | None, scale: Scale, breakdown: Breakdown, record: RankRecord | None
) -> bool:
    """Whether uneven steps have nothing to do with threads: the workers sleep, set the pace, or are started anew."""
    facts = loader.loader if loader else None
    if use.ranks * use.threads > use.cores or facts is None:
        return False
    if record and respawned(facts, scale, record.steps) is not None:
        return True
    cores = _worker_cores(facts, record, scale)
    if cores is None:
        return False
    waited = breakdown.share("input")
    return cores < _AT_WORK or (cores > _PACE and waited > _WAITED)


def _worker_cores(facts: Loader, record: RankRecord | None, scale: Scale) -> float | None:
    """How many cores the workers need together: by what a batch takes them, else by their CPU time; None if unknown."""
    if facts.sample_us is not None and facts.batch_size:
        return (facts.batch_size * facts.sample_us + (facts.collate_us or 0.0)) / scale.step_us
    vitals = record.vitals if record else None
    if vitals is None or not vitals.timed_us or not vitals.children or vitals.children_cpu_us is None:
        return None
    return vitals.children_cpu_us / vitals.timed_us


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


def _message(use: ThreadUse, median_us: float, mean_us: float, p90_us: float) -> str:
    workers = f" and {plural(use.workers, 'loader worker')}" if use.workers else ""
    ranks = f" on each of {use.ranks} ranks" if use.ranks > 1 else ""
    said = f"{plural(use.threads, 'thread')}{workers}{ranks} share {plural(use.cores, 'core')}"
    uneven = f"one step in ten takes more than {duration(p90_us)}, the median {duration(median_us)}"
    if mean_us >= 1.1 * median_us:
        uneven += f", the mean {duration(mean_us)}"
    return f"{said}: {uneven}."


_STEPS = "step [1        ][2        ]\ncpu  [F  ][B  ] [F  ][B  ]"
_LONG = Ev("aten::mm", dims=[[256, 1024], [1024, 1024]], dtypes=["float", "float"])
_UNEVEN = [2000.0, 2100.0, 2200.0, 2900.0, 3000.0, 3000.0, 3100.0, 3200.0, 4800.0, 60000.0]
_EVEN = [2200.0, 2190.0, 2210.0, 2200.0, 2205.0, 2195.0, 2200.0, 2210.0, 2190.0, 2200.0]
_WITH_A_TAIL = [*_EVEN, 60000.0]
_TWO_CORES = {"cores": 2, "threads": 2}


def _facts(settings: dict[str, int], workers: int, unprofiled_us: list[float]) -> dict[str, object]:
    return {"settings": settings, "loaders": [{"num_workers": workers}], "steps": {"unprofiled_us": unprofiled_us}}


EXAMPLES = [
    Example(
        "two threads and two workers on two cores, with a long tail",
        draw(_STEPS, us=250, F=FORWARD, B=BACKWARD),
        facts=_facts(_TWO_CORES, 2, _UNEVEN),
        saves_us=(300, 1100),
        says=("2 threads and 2 loader workers share 2 cores", "the mean"),
    ),
    Example(
        "the same crowd, but the steps are even",
        draw(_STEPS, us=250, F=FORWARD, B=BACKWARD),
        facts=_facts(_TWO_CORES, 2, _EVEN),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "uneven steps, and workers that hand over tensors which are in memory already",
        draw(_STEPS, us=250, F=FORWARD, B=BACKWARD),
        facts={
            **_facts(_TWO_CORES, 2, _UNEVEN),
            "loaders": [{"num_workers": 2, "batch_size": 32, "sample_us": 2.0, "collate_us": 50.0}],
        },
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "uneven steps, and spawned workers whose processes hardly run: what a sample takes them is not known",
        draw(_STEPS, us=250, F=FORWARD, B=BACKWARD),
        facts={
            **_facts(_TWO_CORES, 2, _UNEVEN),
            "loaders": [{"num_workers": 2, "batch_size": 32}],
            "vitals": {"timed_us": 100_000.0, "children": 2, "children_cpu_us": 2_000.0},
        },
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "steps that differ by less than could be told from chance after the change",
        draw(_STEPS, us=250, F=FORWARD, B=BACKWARD),
        facts=_facts(_TWO_CORES, 2, _WITH_A_TAIL),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "uneven steps of a loop that waits for its workers: they set the pace",
        draw(
            "step [1        ][2        ]\ncpu  [D  ][F ][B] [D  ][F ][B]", us=250, D=NEXT_WORKERS, F=FORWARD, B=BACKWARD
        ),
        facts={
            **_facts(_TWO_CORES, 2, _UNEVEN),
            "loaders": [{"num_workers": 2, "batch_size": 8, "sample_us": 400.0, "collate_us": 50.0}],
        },
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "uneven steps beside a GPU: the loop's ops only launch",
        draw(
            "step  [1        ][2        ]\ncpu   [F  ][B  ] [F  ][B  ]\ngpu 7  [K  ][K  ] [K  ][K ]",
            us=25,
            F=FORWARD,
            B=BACKWARD,
            K=GEMM,
        ),
        facts=_facts(_TWO_CORES, 2, _UNEVEN),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "uneven steps, but cores enough: something else is the cause",
        draw(_STEPS, us=250, F=FORWARD, B=BACKWARD),
        facts=_facts({"cores": 16, "threads": 8}, 2, _UNEVEN),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "eight threads on two cores, without a worker and with even steps",
        draw(_STEPS, us=250, F=_LONG, B=BACKWARD),
        facts=_facts({"cores": 2, "threads": 8}, 0, _EVEN),
        saves_us=(360, 1760),
        says=("8 threads share 2 cores",),
    ),
    Example(
        "one thread already",
        draw(_STEPS, us=250, F=FORWARD, B=BACKWARD),
        facts=_facts({"cores": 2, "threads": 1}, 2, _UNEVEN),
        saves_us=None,
    ),
    Example(
        "a bare trace knows neither cores nor threads",
        draw(
            "step  [1        ][2        ]\ncpu   [F  ][B  ] [F  ][B  ]\ngpu 7  [K  ][K  ] [K  ][K ]",
            us=250,
            F=FORWARD,
            B=BACKWARD,
            K=GEMM,
        ),
        saves_us=None,
        skipped="not captured by `advisor run`",
    ),
]
