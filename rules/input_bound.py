"""The step waits for the next batch.

## What it looks at
The time in which the training loop stands in `next()` on its DataLoader while the device has nothing to do. A fetch
that the device's work hides costs nothing and is not counted. Without a device it is the time of the fetch itself.
Of a fetch, what reads the samples, what puts them together and what draws their indices are told apart.

## Why it costs time
Nothing is computed until the batch is there. With `num_workers=0` the loop makes each batch itself, one after the
other with the training. With workers, they make batches more slowly than the step uses them up, are started anew in
each epoch, or hand over from process to process what the loop would have made in less time.

## How to fix it
What depends on the data alone is done once, before the training: parsed, decoded, turned into tensors. What is random
is left to worker processes that make the batches while the step computes: `num_workers=N`, with
`persistent_workers=True` so that they live longer than an epoch. Enough is (time to make a batch) / (time of the rest
of the step), never more than the cores that are free. If no core is free, make a sample cheaper: decode smaller
images, move normalisation and augmentation to the device, put a batch together with one op instead of number by
number. Samples that are tensors in memory need no worker at all. The loop draws indices itself, with workers, too: a
sampler draws those of an epoch with one call.

## When to leave it
A data set that is too large to be kept prepared, on a machine without a free core. A short wait at the start of each
epoch only.
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
    LineCosts,
    Loader,
    LoaderFacts,
    Nesting,
    RankRecord,
    Replay,
    Scale,
    Source,
    Steps,
    Trace,
    Undilated,
    draw,
)

from . import _batches, _sampler, _workers
from ._cpu_loader import Seen, facts_of, keep_workers, on_cpu, where_of
from ._cpu_loader_examples import ON_CPU
from ._words import loader_call, percent, plural, time

CONFIRMED = "real traces: one ResNet-50 script on a V100 with num_workers=0 and with num_workers=4"

# Taking a batch from a worker costs the loop some hundred µs: what is made faster than that is best made in the loop.
_CHEAP_BATCH_US = 500.0
# Workers that have the cores less often leave them to every part of the step.
_ALL_PARTS = ("input", "forward", "backward", "optimizer", "other_ops", "host")
# Taking a batch that workers have ready costs time as well. Below this share of the step that may be all there is.
_HANDED_OVER = 0.03


def check(
    trace: Trace,
    waits: InputWaits,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    undilated: Undilated,
    nesting: Nesting,
    costs: LineCosts | None,
    loader: LoaderFacts | None,
    record: RankRecord | None,
    replay: Replay | None,
    *,
    min_share: float = 0.005,  # one argument of the loader; 0.8 % is what four workers left in the recorded pair
    min_gain: float = 0.05,  # without a device: writing a dataset anew is work, less than 5 % does not repay it
) -> Iterator[Finding]:
    part = "idle_input" if breakdown.on_device else "input"
    wait_us, share = breakdown.us(part), breakdown.share(part)
    facts = loader.loader if loader else None
    workers = _workers.in_use(waits, facts)
    exposed_us = scale.scaled(wait_us) if breakdown.on_device else None
    least = min_share if breakdown.on_device else min_gain
    drawn, drawn_us = _sampler.advice(facts, waits, scale, costs, workers, exposed_us, least)
    if drawn:
        yield drawn
        # Neither workers nor cheaper samples draw faster: the rest of the wait is for the others.
        share, wait_us = share * max(1 - drawn_us / max(wait_us, 1.0), 0.0), max(wait_us - drawn_us, 0.0)
    seen = Seen(breakdown.on_device, wait_us, share, workers, waits, facts, record)
    made = None if breakdown.on_device else _batches.batch(facts, waits, trace, nesting)
    if made is not None:
        waited = undilated.share(undilated.in_part("fetch", wait_us, python_us=wait_us))
        where = where_of(costs, waits, workers, undilated)
        finding, ask = on_cpu(seen, made, waited, scale, min_gain, where)
        if finding or ask:
            yield finding or _beside_the_step(seen, steps, scale, replay, where)
        return
    if share < min_share or (workers == 0 and waits.us < _CHEAP_BATCH_US * max(waits.fetches, 1.0)):
        return
    yield _beside_the_step(seen, steps, scale, replay, (waits.where,) if waits.where else ())


def _beside_the_step(
    seen: Seen, steps: Steps, scale: Scale, replay: Replay | None, where: tuple[Source, ...]
) -> Finding:
    """Workers, or more of them, that make batches beside the step."""
    waits, wait_us, workers, facts = seen.waits, seen.wait_us, seen.workers, seen.facts
    rest_us = max(steps.step_us - wait_us, 0.0)
    stall = _single_stall(waits, steps, wait_us)
    wanted = _workers.that_keep_up(waits, workers, wait_us, rest_us, facts)
    free = _workers.free_cores(seen.record)
    ready = workers != 0 and seen.share < _HANDED_OVER
    claims: tuple[str, ...] = ("idle_input" if seen.on_device else "input",)
    if stall:
        saving, fix = None, keep_workers(facts, workers)
    elif workers == 0 and not seen.on_device and _workers.crowded(seen.record):
        # Nobody can say how cheap a sample may become, and workers would take their cores from the training.
        saving, fix = None, _fix(facts, workers, wanted, 0, seen.on_device)
    elif ready:
        how = "at most all of it; a batch that is ready costs some time to take"
        saving, fix = scale.saving(0.0, wait_us, how), None
    else:
        saving = _workers.saving(scale, wait_us, rest_us, workers, wanted, free, seen.on_device)
        possible = _workers.possible(workers, wanted, free, seen.on_device)
        saving = _workers.replayed(saving, replay, waits, workers, possible, seen.on_device)
        fix = _fix(facts, workers, wanted, free, seen.on_device)
        if workers and possible is None and not seen.on_device:
            saving, claims = _workers.with_cores(saving, seen.record, scale), _ALL_PARTS
    return Finding(
        message=_message(seen.on_device, scale.scaled(wait_us), seen.share, workers, ready, stall, waits.longest_us),
        saving=saving,
        where=where,
        facts=facts_of(seen) | {"workers_that_keep_up": wanted, "free_cores": free},
        fix=fix,
        claims=claims,
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
    *ON_CPU,
]
