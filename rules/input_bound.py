"""The step waits for the next batch.

## What it looks at
The time in which the training loop stands in `next()` on its DataLoader while the device has nothing to do. A fetch
that the device's work hides costs nothing and is not counted. Without a device it is the time of the fetch itself.

## Why it costs time
Nothing is computed until the batch is there. With `num_workers=0` the loop makes each batch itself, one after the
other with the training. With workers, they make batches more slowly than the step uses them up.

## How to fix it
Let worker processes make the batches while the step computes: `num_workers=N`, with `persistent_workers=True` so
that they live longer than an epoch. Enough is (time to make a batch) / (time of the rest of the step), never more
than the cores that are free. If no core is free, make a sample cheaper: decode smaller images, cache decoded
samples, move normalisation and augmentation to the device, read few large files instead of many small ones.

## When to leave it
Samples that are tensors in memory already: workers then only copy them between processes and are slower than none.
A short wait at the start of each epoch only.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    NEXT,
    NEXT_WORKERS,
    Breakdown,
    Ev,
    Example,
    Finding,
    Fix,
    InputWaits,
    Loader,
    LoaderFacts,
    RankRecord,
    Replay,
    Scale,
    Steps,
    draw,
)

from . import _workers
from ._words import loader_call, percent, plural, time

CONFIRMED = "real traces: one ResNet-50 script on a V100 with num_workers=0 and with num_workers=4"

# Taking a batch from a worker costs the loop some hundred µs: what is made faster than that is best made in the loop.
_CHEAP_BATCH_US = 500.0
# Taking a batch that workers have ready costs time as well. Below this share of the step that may be all there is.
_HANDED_OVER = 0.03


def check(
    waits: InputWaits,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    loader: LoaderFacts | None,
    record: RankRecord | None,
    replay: Replay | None,
    *,
    min_share: float = 0.005,  # one argument of the loader; 0.8 % is what four workers left in the recorded pair
) -> Iterator[Finding]:
    part = "idle_input" if breakdown.on_device else "input"
    wait_us, share = breakdown.us(part), breakdown.share(part)
    if share < min_share:
        return
    facts = loader.loader if loader else None
    workers = _workers.in_use(waits, facts)
    if workers == 0 and waits.us < _CHEAP_BATCH_US * max(waits.fetches, 1.0):
        return
    rest_us = max(steps.step_us - wait_us, 0.0)
    stall = _single_stall(waits, steps, wait_us)
    wanted = _workers.that_keep_up(waits, workers, wait_us, rest_us, facts)
    free = _workers.free_cores(record)
    ready = workers != 0 and share < _HANDED_OVER
    if stall:
        saving, fix = None, _keep_workers(facts, workers)
    elif ready:
        saving, fix = (
            scale.saving(0.0, wait_us, "at most all of it; a batch that is ready costs some time to take"),
            None,
        )
    else:
        saving = _workers.saving(scale, wait_us, rest_us, workers, wanted, free, breakdown.on_device)
        possible = _workers.possible(workers, wanted, free, breakdown.on_device)
        saving = _workers.replayed(saving, replay, waits, workers, possible, breakdown.on_device)
        fix = _fix(facts, workers, wanted, free, breakdown.on_device)
    yield Finding(
        message=_message(breakdown.on_device, scale.scaled(wait_us), share, workers, ready, stall, waits.longest_us),
        saving=saving,
        where=tuple(where for where in (waits.where,) if where),
        facts={
            "wait_us": wait_us,
            "fetch_us": waits.us,
            "longest_fetch_us": waits.longest_us,
            "workers": workers,
            "workers_that_keep_up": wanted,
            "free_cores": free,
            "sample_us": facts.sample_us if facts else None,
        },
        fix=fix,
        claims=(part,),
        at_most="medium" if stall else "low" if ready else "high",
    )


def _single_stall(waits: InputWaits, steps: Steps, wait_us: float) -> bool:
    """Most of the wait is one fetch among several: the start of an epoch, not the pace of the loader."""
    return steps.count >= 3 and waits.longest_us > 0.75 * wait_us * steps.count


def _fix(facts: Loader | None, workers: int | None, wanted: int | None, free: int | None, on_device: bool) -> Fix:
    if workers is None:
        after = "DataLoader(dataset, ..., num_workers=N)  # more than now, at most one per free core"
        return Fix("Let more workers make the batches, if cores are free", "exact", "DataLoader(dataset, ...)", after)
    target = min(wanted or 4, free) if free is not None else wanted or 4
    if target <= workers:
        title = "Make a sample cheaper: no core is free for another worker"
        after = "# in the dataset: cache decoded samples, or decode them smaller; normalise on the device"
        return Fix(title, "semantics", loader_call(facts), after)
    changes: dict[str, object] = {"num_workers": target, "persistent_workers": True}
    if on_device:
        changes["pin_memory"] = True
    said = "" if free is not None else " (if the machine has that many free cores)"
    return Fix(
        f"Let {plural(target, 'worker')} make the batches{said}",
        "exact",
        loader_call(facts, num_workers=workers),
        loader_call(facts, **changes),
    )


def _keep_workers(facts: Loader | None, workers: int | None) -> Fix | None:
    if workers == 0 or (facts and facts.persistent_workers):
        return None
    return Fix(
        "Keep the workers between epochs",
        "exact",
        loader_call(facts),
        loader_call(facts, persistent_workers=True),
    )


def _message(
    on_device: bool, wait_us: float, share: float, workers: int | None, ready: bool, stall: bool, longest_us: float
) -> str:
    who = "The GPU" if on_device else "The training loop"
    said = f"{who} waits {time(wait_us)} of each step ({percent(share)}) for the next batch"
    if stall:
        return f"{said}; a single fetch of {time(longest_us)} holds most of it, as at the start of an epoch."
    if workers == 0:
        return f"{said}: batches are made in the training process itself (num_workers=0)."
    if ready:
        return f"{said}, although workers make the batches: mostly it is ready."
    if workers is None:
        return f"{said}: the loader's workers make batches more slowly than the step uses them."
    return f"{said}: {plural(workers, 'worker')} {'makes' if workers == 1 else 'make'} them too slowly."


_ON_GPU = """
    step   [1                 ][2                 ][3                 ]
    cpu    [D       ][F ]      [D       ][F ]      [D       ][F ]
    gpu 7             [K     ]           [K     ]            [K     ]
    """

EXAMPLES = [
    Example(
        "the loop makes each batch itself while the GPU is empty",
        draw(_ON_GPU, us=1000, D=NEXT, F=FORWARD, K=GEMM),
        saves_us=(4000, 11000),
        says=("num_workers=0", "The GPU waits"),
    ),
    Example(
        "the same, and capture knows the cores",
        draw(_ON_GPU, us=1000, D=NEXT, F=FORWARD, K=GEMM),
        facts={"settings": {"cores": 8}, "loaders": [{"num_workers": 0, "batch_size": 32}]},
        saves_us=(4000, 11000),
    ),
    Example(
        "two workers are too slow",
        draw(_ON_GPU, us=1000, D=NEXT_WORKERS, F=FORWARD, K=GEMM),
        facts={"settings": {"cores": 16}, "loaders": [{"num_workers": 2, "batch_size": 32}]},
        saves_us=(4000, 11000),
        says=("2 workers make them too slowly",),
    ),
    Example(
        "two workers are too slow and no core is free",
        draw(_ON_GPU, us=1000, D=NEXT_WORKERS, F=FORWARD, K=GEMM),
        facts={"settings": {"cores": 2}, "loaders": [{"num_workers": 2, "batch_size": 32}]},
        saves_us=(0, 11000),
    ),
    Example(
        "without a GPU the fetch itself is the wait",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [D       ][F ][B ]  [D       ][F ][B ]
            """,
            us=1000,
            D=NEXT,
            F=FORWARD,
            B=BACKWARD,
        ),
        saves_us=(0, 10000),
        says=("The training loop waits",),
    ),
    Example(
        "one long fetch at the start of an epoch",
        draw(
            """
            step   [1                  ][2      ][3      ][4      ]
            cpu    [D        ][F ]      [F ][D]  [F ][D]  [F ][D]
            gpu 7              [K      ] [K     ] [K     ] [K     ]
            """,
            us=1000,
            D=NEXT_WORKERS,
            F=FORWARD,
            K=GEMM,
        ),
        saves_us="unknown",
        says=("start of an epoch",),
    ),
    Example(
        "tensors in memory: a batch is made faster than a worker could hand it over",
        draw(_ON_GPU, us=20, D=NEXT, F=FORWARD, K=GEMM),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "a slow fetch that the GPU's work hides",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [F ][D            ] [F ][D            ]
            gpu 7   [K                ][K                 ]
            """,
            us=1000,
            D=NEXT,
            F=FORWARD,
            K=GEMM,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "two workers, and a short wait",
        draw(
            """
            step   [1                                 ][2                                 ]
            cpu    [F ][D                            ] [F ][D                            ]
            gpu 7   [K                              ]   [K                              ]
            """,
            us=1000,
            D=NEXT_WORKERS,
            F=FORWARD,
            K=GEMM,
        ),
        facts={"settings": {"cores": 16}, "loaders": [{"num_workers": 2, "batch_size": 32}]},
        saves_us=(0, 1100),
        says=("mostly it is ready",),
    ),
    Example(
        "workers have the batch ready",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [F ][B ][D]         [F ][B ][D]
            gpu 7   [K                ][K                ]
            """,
            us=100,
            D=NEXT_WORKERS,
            F=FORWARD,
            B=Ev(BACKWARD.name, launches=""),
            K=GEMM,
        ),
        saves_us=None,
    ),
]
