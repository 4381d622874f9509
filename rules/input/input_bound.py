"""The training loop waits for the next batch.

## What it looks at
The time that the training loop spends in `next()` on its DataLoader while the device is idle. A fetch that overlaps
with work on the device costs nothing and is not counted. Without a device, it is the time of the fetch itself. Within
a fetch, reading samples, collating them and drawing their indices are measured separately. Where each epoch begins with
a long wait, the mean of all steps counts, not the median one. Without a device, batches that are ready in time are no
proof either: if all cores are in use, it is recorded for how long the loop's thread has none, and which part of all CPU
time the workers take. Of the first pictures that Pillow decodes in the loop's process or in a forked worker, it is
recorded how large they are decoded, how many times smaller they are made afterwards, what both take, and what work on
all of their pixels takes before they are cropped or made smaller. Ops of samples on tensors that are made four times
smaller, or more, before the batch gets them count apart.

## Why it costs time
Nothing is computed until the batch arrives. With `num_workers=0` the training process loads each batch itself, and
training waits. With workers, they may load batches more slowly than the step uses them, be restarted in every epoch,
or spend more time on passing a batch between processes than loading it in the training process would take. A photograph
of twelve megapixels that is used at 224 x 224 is decoded and resized pixel by pixel all the same. A deque that is read
by index, a list that is searched, a DataFrame that is filtered for each sample, rows of it that are taken singly
take longer than an index of an array.

## How to fix it
Do work that depends only on the data once, before the training: parse, decode, convert to tensors. Leave random
augmentation to worker processes, which load batches while the step computes: `num_workers=N`, with
`persistent_workers=True` so that they are kept between epochs. The number needed is (time to load a batch) / (time of
the rest of the step), and at most the number of free cores. If no core is free, make samples cheaper: decode smaller
images, move normalization and augmentation to the device, collate a batch with one op instead of element by element.
Crop or resize before you change colours, rotate or normalize. JPEG files are decoded at 1/2, 1/4 or 1/8 of their size
if `picture.draft("RGB", size)` is called before their pixels are read (a random crop needs a larger size than the one
it ends in); of other formats, store smaller copies once. Pictures that are made smaller in the same way in each epoch
are kept in memory where they fit, or stored. The finding names the lines that take most of the time;
without a free core it gives their time, which is the most that they can save. A dataset that is a tensor in memory
needs no workers; for large batches, index once per batch instead of once per sample. Tensor ops that are the same for
each sample run once on the batch after it was loaded; random choices are then the same for the whole batch. Indices
are drawn in the training process even with workers: a sampler should draw those of an epoch with one call. Keep the
loader's iterator: `next(iter(loader))` shuffles all indices and starts all workers for a single batch.

## When to leave it
A dataset that is too large to be kept prepared, on a machine without a free core. A short wait at the start of each
epoch only.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import (
    BACKWARD,
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

from ..shared._slow_containers import SlowContainer, in_container, slow_container
from ..shared._vectorized import named_vectorize
from . import (
    _from_numbers,
    _full_size,
    _iterator_recreated,
    _kept_pictures,
    _large_pictures,
    _one_by_one,
    _pictures_at_full_size,
    _restarts,
    _sampler,
)
from ._cpu_loader import on_cpu
from ._cpu_loader_examples import ON_CPU
from ._full_size import AT_FULL_SIZE
from ._loader import Seen
from ._picture_examples import ON_PICTURES
from ._restarts import RESTARTED
from ._sample_ops_examples import ON_SAMPLES
from ._workers_advice import beside_the_step, in_time

CONFIRMED = (
    "real traces: one ResNet-50 script on a V100 with num_workers=0 and with num_workers=4; samples that are lists of "
    "numbers, pictures that are decoded at full size, waits as each epoch begins: one script each that showed the need"
)

# Advice that saves this share of a wait or more is given alone.
_MOST = 0.5
# A batch made faster than that is best made in the loop.
_CHEAP_BATCH_US = constant("loader.cheap_batch_us").value


def check(
    price: Price,
    waits: InputWaits,
    costs: LineCosts | None,
    loader: LoaderFacts | None,
    record: RankRecord | None,
    *,
    min_share: float = 0.005,  # one argument of the loader; in the recorded pair, four workers left a wait of 0.8 %
    min_gain: float = 0.05,  # without a device: rewriting a dataset is work that less than 5 % does not justify
) -> Iterator[Finding]:
    seen = Seen.of(price, waits, costs, loader, record)
    least = min_share if seen.on_device else min_gain
    anew = None if seen.on_device else _iterator_recreated.advice(seen, least)
    if anew:
        yield anew  # what an epoch costs that goes on can be told when it does
        return
    begun = _restarts.advice(seen, min_gain)
    if begun:
        yield begun
        return
    drawn = _sampler.advice(seen, least)
    if drawn:
        yield drawn[0]
        # Neither workers nor cheaper samples draw faster: the rest of the wait is for the others.
        seen = seen.less(drawn[1])
    large = _kept_pictures.advice(seen, least) or _large_pictures.advice(seen, least)
    if large:
        yield large
        if not seen.on_device and _is_most(large, seen):
            return  # cores are what batches lack, and these pictures take them
    whole = _pictures_at_full_size.advice(seen, least)
    full = None if seen.on_device else _full_size.advice(seen, least)
    for early in filter(None, (whole, full)):
        yield early
        if not seen.on_device and _is_most(early, seen):
            return
    found = _on_batches(seen, min_share, min_gain)
    if found:
        named = named_vectorize(in_container(found, _of_samples(seen), price), record)
        # Samples that are prepared once read no container at all.
        yield replace(named, saving=found.saving) if found.saving and found.saving.low_us else named


def _is_most(found: Finding, seen: Seen) -> bool:
    """Whether what it saves may be most of the wait, so that nothing else has to be said of it."""
    return found.saving is not None and found.saving.high_us >= _MOST * seen.price.scale.scaled(seen.wait_us)


def _of_samples(seen: Seen) -> SlowContainer | None:
    """The slow operation on a container that reading samples spends its time in; None if no line tells."""
    if seen.costly is None or seen.costs is None:
        return None
    known = seen.costs.by_place
    lines = {(one.file, one.line) for one in (*seen.costly.sources, *seen.costly.below)}
    return slow_container(seen.record, [known[at] for at in lines if at in known], sum(seen.costly.us))


def _on_batches(seen: Seen, min_share: float, min_gain: float) -> Finding | None:
    """The advice on how batches are made: the first that fits, by what is known of them."""
    if seen.made is not None:
        as_tensors = _from_numbers.advice(seen, seen.made, min_gain) or _one_by_one.advice(seen, seen.made)
        return as_tensors or on_cpu(seen, seen.made, min_gain)
    # No wait that matters, or batches that the loop makes in less time than it takes to get them from a worker.
    cheap_us = _CHEAP_BATCH_US * max(seen.waits.fetches, 1.0)
    at_once = seen.share < min_share or (seen.workers == 0 and seen.waits.us < cheap_us)
    return None if at_once or in_time(seen) else beside_the_step(seen)


_ON_GPU = """
    step   [1                 ][2                 ][3                 ]
    cpu    [D       ][F ]      [D       ][F ]      [D       ][F ]
    gpu 7             [K     ]           [K     ]            [K     ]
    """

_ONE_LONG = draw(
    """
    step   [1                  ][2      ][3      ][4      ]
    cpu    [D        ][F ]      [F ][D]  [F ][D]  [F ][D]
    gpu 7              [K      ] [K     ] [K     ] [K     ]
    """,
    us=1000,
    D=NEXT_WORKERS,
)

EXAMPLES = [
    Example(
        "the loop makes each batch itself while the GPU is empty",
        draw(_ON_GPU, us=1000, D=NEXT),
        saves_us=(4000, 11000),
        says=("num_workers=0", "The GPU waits"),
    ),
    Example(
        "the same, and capture knows the cores",
        draw(_ON_GPU, us=1000, D=NEXT),
        facts={"settings": {"cores": 8}, "loaders": [{"num_workers": 0, "batch_size": 32}]},
        saves_us=(4000, 11000),
    ),
    Example(
        "two workers are too slow",
        draw(_ON_GPU, us=1000, D=NEXT_WORKERS),
        facts={"settings": {"cores": 16}, "loaders": [{"num_workers": 2, "batch_size": 32}]},
        saves_us=(4000, 11000),
        says=("2 workers load them too slowly",),
    ),
    Example(
        "two workers are too slow and no core is free",
        draw(_ON_GPU, us=1000, D=NEXT_WORKERS),
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
        ),
        saves_us=(0, 10000),
        says=("The training loop waits",),
    ),
    Example("one long fetch at the start of an epoch", _ONE_LONG, saves_us="unknown", says=("start of an epoch",)),
    Example(
        "one long fetch of four, as workers that take longer for a batch than the steps leave some",
        _ONE_LONG,
        facts={"loaders": [{"num_workers": 2, "batch_size": 16, "sample_us": 3000.0}]},
        saves_us=(0, 4000),
        says=("2 workers load them too slowly",),
    ),
    Example(
        "tensors in memory: a batch is made faster than a worker could hand it over",
        draw(_ON_GPU, us=20, D=NEXT),
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
        ),
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
        ),
        facts={"settings": {"cores": 16}, "loaders": [{"num_workers": 2, "batch_size": 32}]},
        saves_us=(0, 1100),
        says=("most are ready in time",),
    ),
    Example(
        "a short step whose batches workers hand over in 0.3 ms each: they are in time",
        draw(_ON_GPU, us=30, D=NEXT_WORKERS),
        facts={"settings": {"cores": 16}, "loaders": [{"num_workers": 2, "batch_size": 32}]},
        saves_us=(0, 330),
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
            B=Ev(BACKWARD.name, launches=""),
        ),
    ),
    *ON_CPU,
    *ON_PICTURES,
    *ON_SAMPLES,
    *AT_FULL_SIZE,
    *RESTARTED,
]
