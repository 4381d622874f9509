"""The training loop waits for the next batch.

## What it looks at
The time that the training loop spends in `next()` on its DataLoader while the device is idle. A fetch that overlaps
with work on the device costs nothing and is not counted. Without a device, it is the time of the fetch itself. Within
a fetch, reading samples, collating them and drawing their indices are measured separately.

## Why it costs time
Nothing is computed until the batch arrives. With `num_workers=0` the training process loads each batch itself, and
training waits meanwhile. With workers, they may load batches more slowly than the step uses them, be restarted in every
epoch, or spend more time on passing a batch between processes than loading it in the training process would take.

## How to fix it
Do what depends on the data alone once, before the training: parse, decode, convert to tensors. Leave what is random to
worker processes, which load batches while the step computes: `num_workers=N`, with `persistent_workers=True` so that
they are kept between epochs. The number needed is (time to load a batch) / (time of the rest of the step), and at most
the number of free cores. If no core is free, make samples cheaper: decode smaller images, move normalization and
augmentation to the device, collate a batch with one op instead of element by element. The lines that take most of the
time are named; without a free core their time is given, which is the most that they can save. A dataset that is a
tensor in memory needs no workers at all, and for large batches a single index per batch instead of one per sample.
Indices are drawn in the training process even with workers: a sampler should draw those of an epoch with one call.
Keep the loader's iterator: `next(iter(loader))` shuffles all indices and starts all workers for a single batch.

## When to leave it
A dataset that is too large to be kept prepared, on a machine without a free core. A short wait at the start of each
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
    Ev,
    Example,
    Finding,
    InputWaits,
    LineCosts,
    LoaderFacts,
    Price,
    RankRecord,
    constant,
    draw,
)

from ..shared import _batches
from . import _iterator_recreated, _one_by_one, _sampler, _workers
from ._costly_lines import costly_lines
from ._cpu_loader import Seen, on_cpu, where_of
from ._cpu_loader_examples import ON_CPU
from ._workers_advice import beside_the_step

CONFIRMED = "real traces: one ResNet-50 script on a V100 with num_workers=0 and with num_workers=4"

# A batch made faster than that is best made in the loop.
_CHEAP_BATCH_US = constant("loader.cheap_batch_us").value


def check(
    price: Price,
    waits: InputWaits,
    costs: LineCosts | None,
    loader: LoaderFacts | None,
    record: RankRecord | None,
    *,
    min_share: float = 0.005,  # one argument of the loader; 0.8 % is what four workers left in the recorded pair
    min_gain: float = 0.05,  # without a device: rewriting a dataset is work that less than 5 % does not justify
) -> Iterator[Finding]:
    breakdown, scale, undilated = price.breakdown, price.scale, price.undilated
    part = "idle_input" if breakdown.on_device else "input"
    wait_us, share = breakdown.us(part), breakdown.share(part)
    facts = loader.loader if loader else None
    workers = _workers.in_use(waits, facts)
    exposed_us = scale.scaled(wait_us) if breakdown.on_device else None
    least = min_share if breakdown.on_device else min_gain
    anew = None if breakdown.on_device else _iterator_recreated.advice(record, waits, costs, undilated, scale, least)
    if anew:
        yield anew  # what an epoch costs that goes on can be told when it does
        return
    drawn, drawn_us = _sampler.advice(facts, waits, scale, costs, workers, exposed_us, least)
    if drawn:
        yield drawn
        # Neither workers nor cheaper samples draw faster: the rest of the wait is for the others.
        share, wait_us = share * max(1 - drawn_us / max(wait_us, 1.0), 0.0), max(wait_us - drawn_us, 0.0)
    seen = Seen(breakdown.on_device, wait_us, share, workers, waits, facts, record)
    if breakdown.on_device:
        if not _made_at_once(seen, min_share):
            yield beside_the_step(seen, price, (waits.where,) if waits.where else ())
        return
    costly = costly_lines(costs, waits, facts, undilated, scale) if workers == 0 else None
    made = _batches.batch(facts, waits, price.ops.trace, price.ops.nesting)
    if costly and made is not None:
        costly = costly.within(made.us)
    where = where_of(costs, waits, workers, undilated, costly, facts)
    finding, ask = None, not _made_at_once(seen, min_share)
    if made is not None:
        waited = undilated.share(undilated.in_part("fetch", wait_us, python_us=wait_us))
        finding = _one_by_one.advice(seen, made, scale, where)
        ask = False
        if finding is None:
            finding, ask = on_cpu(seen, made, waited, scale, min_gain, where, costly)
    if finding or ask:
        yield finding or beside_the_step(seen, price, where, costly)


def _made_at_once(seen: Seen, min_share: float) -> bool:
    """No wait that matters, or batches that the loop makes in less time than it takes to get them from a worker."""
    cheap_us = _CHEAP_BATCH_US * max(seen.waits.fetches, 1.0)
    return seen.share < min_share or (seen.workers == 0 and seen.waits.us < cheap_us)


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
        says=("2 workers load them too slowly",),
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
        says=("most are ready in time",),
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
