"""Batches are copied to the GPU from pageable memory.

## What it looks at
Copies from the host to the device whose source is ordinary, pageable memory, and the time for which such a copy runs
and no kernel does. Where a trace does not say what memory it was (ROCm), copies that the host waits for.

## Why it costs time
The device can read only from page-locked ("pinned") memory. From pageable memory, the driver first copies piece by
piece into its own pinned buffer; the host is blocked in the call, and `non_blocking=True` has no effect.

## How to fix it
`DataLoader(..., pin_memory=True)` with loader workers pins each batch in a background thread; then
`.to(device, non_blocking=True)` returns at once and the copy can overlap with the kernels of the previous step. A
custom batch class needs a method `pin_memory()`. Tensors that do not come from a loader: create them pinned once,
before the loop, and copy into them.

## When to leave it
Copies of a few kilobytes. Weights of an optimizer that works on the host, which the rule idle-gpu tells. Hosts short of
memory: pinned memory cannot be swapped. `x.pin_memory()` in the loop itself: pinning copies on the loop's own thread,
and `x.pin_memory().to(device, non_blocking=True)` can take twice as long as `x.to(device)` (PyTorch tutorial "A guide
on good usage of non_blocking and pin_memory() in PyTorch"). So does `pin_memory=True` with `num_workers=0`, which pins
in the loop's thread, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    H2D_PAGEABLE,
    H2D_PINNED,
    TO,
    TO_BLOCKING,
    Category,
    Copies,
    CopySite,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Loader,
    LoaderFacts,
    Missing,
    Price,
    Saving,
    constant,
    data_size,
    draw,
    edits,
    lookup,
)

from ..shared._host_updates import HostUpdate, offloaded
from ..shared._made_on_host import CREATE_THERE, CREATED, made_on_host
from ..shared._places import made_at
from ..shared._round_trips import OFFLOADED, round_trip
from ..shared._small_copies import told_as_small
from ..shared._words import count, each_step, loader_call
from ._doubles import IN_DOUBLE, told_in_double
from ._sent_weights import KEEP_WEIGHTS, come_by_layer, drawn

# Which of two arguments is missing is not known: below 3 % of the step trying both is not worth it.
_UNSTATED = 0.03

_UNKNOWN_BUS = constant("device.pinned_share").value

CONFIRMED = "real traces: ResNet-50 on a V100, every batch of 19 MB from pageable memory"


def check(
    copies: Copies,
    price: Price,
    update: HostUpdate,
    loader: LoaderFacts | None,
    lines: Lines,
    *,
    min_share: float = 0.01,  # two arguments; below 1 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    steps, scale = price.ops.steps, price.scale
    if _of_update(price, update):
        return
    if copies.h2d_pageable_bytes is None or copies.pageable_us is None:
        yield _of_unstated_memory(copies, price, loader)
        return
    exposed_us = min(copies.pageable_us * price.ops.longer, copies.exposed_us, price.measured_us(("exposed_copy",)))
    if exposed_us < min_share * steps.step_us:
        return
    sites = [site for site in copies.blocking if site.to_device and site.pinned is False]
    ops = np.array([row for site in sites for row in site.ops_rows], int)
    data = np.array([row for site in sites for row in site.rows], int)
    small = told_as_small(price.ops, lines, ops)
    if 2 * price.ops.us(data[small]) > price.ops.us(data):
        return
    trip = round_trip(price)
    weights = trip is None and come_by_layer(price, data)
    saving = _saving(copies, price, (ops, data), exposed_us, weights=weights)
    if saving.high_us < min_share * scale.step_us:
        return
    facts = loader.loader if loader else None
    rate = copies.h2d_pageable_bytes / copies.pageable_us * 1e6
    created = not weights and _created(sites, price)
    if weights:
        fix = KEEP_WEIGHTS
    else:
        fix = trip or (CREATE_THERE if created else _fix(facts, _without_workers(price, facts)))
    found = Finding(
        message=(
            f"{data_size(copies.h2d_pageable_bytes)} a step are copied to the GPU from pageable memory, in "
            f"{_copies(copies.pageable_calls or 0.0)} at {data_size(rate)}/s; for {each_step(price, exposed_us)} the "
            f"GPU does nothing else{_from_where(weights=weights, created=created)}."
        ),
        saving=saving,
        where=(*(made_at(facts) if "DataLoader(" in fix.after else ()), *(one.where for one in sites if one.where))[:3],
        facts={
            "h2d_pageable_bytes": copies.h2d_pageable_bytes,
            "pageable_us": copies.pageable_us,
            "exposed_us": exposed_us,
            "bytes_per_second": rate,
            "pin_memory": facts.pin_memory if facts else None,
        },
        fix=fix,
        claims=("exposed_copy",),
    )
    yield told_in_double(found, price, ops.tolist())


def _of_unstated_memory(copies: Copies, price: Price, loader: LoaderFacts | None) -> Finding:
    """The finding where the trace does not state which memory is copied from; Missing where nothing else tells."""
    found = _unstated(copies, price, loader, _UNSTATED * price.ops.steps.step_us)
    if found is None:
        raise Missing("this trace does not distinguish pageable from pinned memory; the vendor's profiler omits it")
    unstated = [site for site in copies.blocking if site.to_device and site.pinned is None]
    return told_in_double(found, price, [row for site in unstated for row in site.ops_rows])


def _of_update(price: Price, update: HostUpdate) -> bool:
    """Whether most of what comes from pageable memory are weights that the host updated, reported with that update."""
    events = price.ops.events
    copies = events.of(Category.MEMCPY) & events.named("HtoD") & ~events.named("pinned") & price.ops.links.inside
    sizes = np.maximum(events.bytes, 0) * copies
    return bool(2 * sizes[update.copies].sum() > sizes.sum())


def _copies(calls: float) -> str:
    return f"{count(calls)} {'copy' if calls == 1 else 'copies'}"


def _from_where(*, weights: bool, created: bool) -> str:
    """What is copied, where it is no batch of a loader."""
    if weights:
        return ": weights come layer by layer, as they are used"
    return ": ops on the host create what is copied" if created else ""


def _saving(copies: Copies, price: Price, rows: tuple[Ints, Ints], exposed_us: float, *, weights: bool) -> Saving:
    """What the step saves without these copies, of which it waits for so many µs. rows: their ops, and themselves."""
    how = "low: the copy stays exposed and as slow as now; high: it overlaps with other work, and is as fast as the bus"
    if weights:
        how = "low: the weights do not fit on the GPU; high: none of them is copied"
    ops, data = rows
    if not len(data):
        return price.scale.saving(0.0, exposed_us, how)
    quicker = [edits.unsync(ops), edits.move(data, lanes=1 / _left(copies, price))]
    beside = [edits.remove(np.concatenate(rows))] if weights else quicker
    return price.saving([], beside, ("exposed_copy",), how, model_us=(0.0, exposed_us), bound_us=exposed_us)


def _left(copies: Copies, price: Price) -> float:
    """Share of their time that these copies take at the least from pinned memory: at the peak of the bus, if known."""
    device = price.ops.device
    hardware = lookup(device.name, device.capability)
    if hardware is None or hardware.bus_gbs is None or not copies.h2d_pageable_bytes or not copies.pageable_us:
        return _UNKNOWN_BUS
    return min(copies.h2d_pageable_bytes / (1e3 * hardware.bus_gbs) / copies.pageable_us, 1.0)


def _created(sites: Sequence[CopySite], price: Price) -> bool:
    """Whether ops on the host create what most of this time is spent to copy: no loader could pin it."""
    largest = max(sites, key=lambda site: site.us, default=None)
    return largest is not None and made_on_host(price, largest.ops_rows).created


_NON_BLOCKING = Fix("Pass `non_blocking=True`", "exact", "x = x.to(device)", "x = x.to(device, non_blocking=True)")


def _unstated(copies: Copies, price: Price, loader: LoaderFacts | None, least_us: float) -> Finding | None:
    """Copies to a device that the host waits for, where the trace does not say from which memory: ROCm's.

    PyTorch calls hipMemcpyWithStream for what blocks: without `non_blocking=True`, from whatever memory.
    """
    sites = [site for site in copies.blocking if site.to_device and site.pinned is None]
    cost_us = min(sum(min(site.us, site.blocked_us) for site in sites) * price.ops.longer, copies.exposed_us)
    cost_us = min(cost_us, price.measured_us(("exposed_copy",)))
    if cost_us < least_us:
        return None
    how = "low: the next kernel needs this data; high: the copy overlaps with other work"
    rows = np.array([row for site in sites for row in site.rows], int)
    beside = [edits.unsync(np.array([row for site in sites for row in site.ops_rows], int)), edits.move(rows)]
    calls = sum(site.calls for site in sites)
    facts = loader.loader if loader else None
    return Finding(
        message=(
            f"In each step the host waits for {'a copy' if calls == 1 else f'{count(calls)} copies'} to the GPU, and "
            f"for {each_step(price, cost_us)} the GPU does nothing else; whether the memory was pinned, the "
            "trace does not say."
        ),
        saving=price.saving([], beside, ("exposed_copy",), how, model_us=(0.0, cost_us), bound_us=cost_us),
        where=tuple(site.where for site in sites if site.where)[:3],
        facts={"copies": calls, "exposed_us": cost_us, "pin_memory": facts.pin_memory if facts else None},
        fix=round_trip(price)
        or (_NON_BLOCKING if facts and facts.pin_memory else _fix(facts, _without_workers(price, facts))),
        claims=("exposed_copy",),
        at_most="medium",  # what is missing, pinned memory or `non_blocking=True`, is not known
    )


def _without_workers(price: Price, facts: Loader | None) -> bool:
    """Whether batches are loaded in the training process: as recorded, else by the class that the fetches name."""
    if facts is not None:
        return facts.num_workers == 0
    events = price.ops.events
    alone, workers = events.named("_SingleProcessDataLoaderIter"), events.named("_MultiProcessingDataLoaderIter")
    return bool(alone.any()) and not workers.any()


def _fix(facts: Loader | None, alone: bool) -> Fix:
    if facts and facts.pin_memory:
        return Fix(
            "Let the loader pin these tensors: it pins tensors, lists, dicts and types with `pin_memory()`",
            "exact",
            "class Batch:\n    ...\n\nx = batch.x.to(device)",
            "class Batch:\n    def pin_memory(self):  # the loader's background thread calls it\n"
            "        self.x = self.x.pin_memory()\n        return self\n\n"
            "x = batch.x.to(device, non_blocking=True)",
        )
    # torch/utils/data/dataloader.py: only the iterator with workers pins in a thread of its own.
    changes: dict[str, object] = {"pin_memory": True}
    if alone:
        changes["num_workers"] = 2
    return Fix(
        "Set `pin_memory=True` with loader workers, and copy with `non_blocking=True`"
        if len(changes) > 1
        else "Set `pin_memory=True` and copy with `non_blocking=True`",
        "exact",
        f"loader = {loader_call(facts)}\nx = x.to(device)",
        f"loader = {loader_call(facts, **changes)}\nx = x.to(device, non_blocking=True)",
    )


_STEPS = """
    step   [1                       ][2                       ]
    cpu    [T    ][F ][B  ]          [T    ][F ][B  ]
    gpu 7  [C   ]  [K    ][K    ]    [C   ]  [K    ][K    ]
    """

EXAMPLES = [
    Example(
        "weights of an update on the host, which idle-gpu tells",
        offloaded(memory="Pageable"),
        near_miss=True,
    ),
    IN_DOUBLE,
    replace(CREATED, saves_us=(0, 4000), says=("create what is copied",)),
    Example(
        "the step begins with a pageable copy",
        draw(_STEPS, us=1000, T=TO_BLOCKING, C=H2D_PAGEABLE),
        saves_us=(0, 6000),
        says=("8.39 MB a step", "1 copy"),
    ),
    Example(
        "the loader pins already, this tensor does not come from it",
        draw(_STEPS, us=1000, T=TO_BLOCKING, C=H2D_PAGEABLE),
        facts={"loaders": [{"batch_size": 64, "num_workers": 4, "pin_memory": True}]},
        saves_us=(0, 6000),
        fixes=("def pin_memory(self)",),
    ),
    Example(
        "a loader without workers, which would pin on the loop's own thread",
        draw(_STEPS, us=1000, T=TO_BLOCKING, C=H2D_PAGEABLE),
        facts={"loaders": [{"batch_size": 64, "num_workers": 0, "pin_memory": False}]},
        saves_us=(0, 6000),
        fixes=("with loader workers", "num_workers=2"),
    ),
    Example(
        "a pageable copy that runs beside kernels",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [F ][T  ][B  ]            [F ][T  ][B  ]
            gpu 7   [K                      ] [K                     ]
            gpu 9       [C   ]                    [C   ]
            """,
            us=1000,
            T=TO,
            C=H2D_PAGEABLE,
        ),
        near_miss=True,
    ),
    Example(
        "ROCm does not say what memory it was, but the call is the one that waits",
        draw(
            "step [1                       ][2                       ]\n"
            "cpu  [T    ][F ][B  ]          [T    ][F ][B  ]\n"
            "gpu 7 [C   ] [K    ][K    ]     [C   ] [K    ][K    ]",
            us=1000,
            device="MI300X",
            T=TO_BLOCKING,
            C=Ev("Memcpy HtoD (Host -> Device)", "gpu_memcpy"),
        ),
        saves_us=(0, 6000),
        says=("a copy to the GPU", "the trace does not say"),
    ),
    Example(
        "weights that come layer by layer",
        drawn(16),
        saves_us=(0, 66_000),
        says=("weights come layer by layer",),
        fixes=("Keep the weights on the GPU",),
    ),
    Example("what goes to the host and back as often is no weight", drawn(16, back=True), near_miss=True),
    Example(
        "activations that come back in the backward pass: no loader could pin them",
        OFFLOADED,
        saves_us=(0, 8000),
        fixes=("save_on_cpu(pin_memory=True)",),
    ),
    Example("a copy from pinned memory", draw(_STEPS, us=1000, T=TO, C=H2D_PINNED)),
    Example(
        "a machine without a GPU copies nothing",
        draw("step [1    ][2    ]\ncpu  [F ][B] [F ][B]", us=1000),
        near_miss=True,
        skipped="no device work",
    ),
]
