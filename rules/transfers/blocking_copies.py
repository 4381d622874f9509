"""No kernel runs while data is copied.

## What it looks at
Large copies between pinned memory and the device, or from the device to the host, that block the host in the
call until the data has moved, and during which no kernel runs. Copies from pinned memory that return at once, but
run between the kernels of two steps, because they use the same stream. (Copies from pageable memory are reported by the
rule pageable-copies; a few bytes read back, as `.item()` does, by sync-in-loop.)

## Why it costs time
`.to(device)` and `.cpu()` wait for the copy by default. During that time, the host cannot launch the next kernels, and
the device does nothing but copy. With `non_blocking=True` the host continues, but work of one stream runs in order: the
kernels after the copy wait for it, and it waits for those before it. Such copies are the usual loop, and are reported
only where they are 5 % of the step. So are copies to pinned memory whose data comes back to the same kernels.

## How to fix it
From pinned memory, `.to(device, non_blocking=True)` returns at once; the stream keeps copy and kernels in order.
Fetch and copy the next batch before the current one is used, on a stream of its own where the copy is long. Copy
images as `uint8` and convert them on the device: a quarter of the bytes. Outputs: keep them on the device and copy
them once per epoch. What is offloaded to the host and comes back (activations, states of an optimizer) belongs in
pinned memory, and on a stream of its own.

## When to leave it
Copies whose data the host needs immediately. With `non_blocking=True` from the device to the host, the host
must wait for an event before it reads the result. Gradients and weights of an optimizer that works on the host are
reported by the rule idle-gpu.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    H2D_PINNED,
    SYNC,
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
    Price,
    Saving,
    Scale,
    Steps,
    Treatment,
    data_size,
    draw,
    duration,
    edits,
    overlap_of_each,
)

from ..shared._gathered_objects import GATHER_TENSORS, OBJECTS, gathers_objects
from ..shared._host_updates import HostUpdate, offloaded
from ..shared._round_trips import ACTIVATIONS, OFFLOADED, SMALL_BYTES, round_trip
from ..shared._words import count, each_step
from . import _offloaded
from ._after_copies import waited_for

# With fewer steps, one that copies may mean that every second step does.
_SEVERAL = 4
_PREFETCH = Fix(
    "Copy the next batch on a stream of its own while this one is used, or copy images as `uint8`",
    "exact",
    "for batch in loader:\n    x = batch.to(device, non_blocking=True)\n    train(x)",
    "copies = torch.cuda.Stream()\n\ndef ahead(loader):\n    last = None\n    for batch in loader:\n"
    "        with torch.cuda.stream(copies):\n            x = batch.to(device, non_blocking=True)\n"
    "        if last is not None:\n            yield last\n"
    "        torch.cuda.current_stream().wait_stream(copies)\n"
    "        x.record_stream(torch.cuda.current_stream())\n        last = x\n"
    "    if last is not None:\n        yield last\n\nfor x in ahead(loader):\n    train(x)",
)

_AHEAD = "Copy the next batch a step ahead, before the host waits for anything of this one"


def check(
    copies: Copies,
    steps: Steps,
    scale: Scale,
    price: Price,
    update: HostUpdate,
    *,
    min_share: float = 0.01,  # one argument; below 1 % of the step the gain cannot be seen
    min_share_in_line: float = 0.05,  # a stream and a second batch in memory: below 5 % no reason to rewrite a loop
) -> Iterator[Finding]:
    bound_us = min(copies.exposed_us, price.measured_us(("exposed_copy",)))
    for site in copies.blocking:
        # A copy takes as long without the profiler, as does the host's wait for it.
        cost_us = min(site.us * price.ops.longer, site.blocked_us * price.ops.longer, bound_us)
        # Gradients and weights of an update on the host are reported with that update.
        if (
            _ours(site)
            and not _mostly(site, update.copies)
            and cost_us >= min_share * steps.step_us
            and not _in_one_step(site, price)
        ):
            saving, ahead = _saving(site, cost_us, price)
            least = min_share_in_line if ahead else min_share
            if saving.high_us >= least * scale.step_us:
                yield _finding(site, cost_us, saving, price, ahead=ahead)
    least_us = min_share_in_line * steps.step_us
    found = _offloaded.finding(copies, price, update.copies, least_us)
    found = found or _in_line(copies, price, update.copies, least_us)
    if found:
        yield found


def _in_one_step(site: CopySite, price: Price) -> bool:
    """Whether one of several steps makes all of them, as for a checkpoint: no step usually does."""
    steps, launch = price.ops.steps, price.ops.links.launch
    rows = np.array(site.rows, np.int64)
    called_ns = price.ops.events.start_ns[np.where(launch[rows] >= 0, launch[rows], rows)]
    return steps.count >= _SEVERAL and len(np.unique(steps.step_of(called_ns))) == 1


def _mostly(site: CopySite, others: Ints) -> bool:
    return 2 * int(np.isin(np.array(site.rows, np.int64), others).sum()) > len(site.rows)


def _in_line(copies: Copies, price: Price, others: Ints, least_us: float) -> Finding | None:
    """Copies from pinned memory that do not block the host, but run in line with the kernels before and after them.

    others: copies that another rule reports.
    """
    events, steps, scale = price.ops.events, price.ops.steps, price.scale
    mine = events.of(Category.MEMCPY) & events.named("Memcpy HtoD (Pinned") & price.ops.links.inside
    mine &= events.bytes > SMALL_BYTES
    mine[[row for site in copies.blocking for row in site.rows]] = False
    mine[others] = False
    rows = waited_for(price, np.flatnonzero(mine))
    if not len(rows):
        return None
    # Of all that the steps launched: the window of a device that lags behind holds some of their copies only.
    kernels = events.covered(events.of(Category.KERNEL))
    hidden_ns = overlap_of_each(events.start_ns[rows], events.end_ns[rows], kernels)
    exposed_us = steps.per_step_us(float((events.dur_ns[rows] - hidden_ns).sum())) * price.ops.longer
    if exposed_us < least_us:
        return None
    how = "low: something else waits as long; high: the next batch is copied while kernels of this step run"
    bound_us = min(exposed_us, price.measured_us(("exposed_copy",)))
    moved_aside = [edits.move(rows)]
    saving = price.saving([], moved_aside, ("exposed_copy",), how, model_us=(0.0, bound_us), bound_us=bound_us)
    if saving.high_us * steps.step_us < least_us * scale.step_us:
        return None
    moved, calls = float(events.bytes[rows].sum()) / steps.count, len(rows) / steps.count
    number = "1 copy" if calls == 1 else f"{count(calls)} copies"
    computing = events.stream[events.of(Category.KERNEL) & price.ops.links.inside]
    aside = not np.isin(events.stream[rows], computing).any()
    streams = "a stream that the kernels wait for" if aside else "the stream of the computation"
    return Finding(
        message=(
            f"{data_size(moved)} a step are copied to the GPU from pinned memory, in {number} on {streams}: for "
            f"{each_step(price, exposed_us)} no kernel runs meanwhile."
        ),
        saving=saving,
        facts={"bytes": moved, "exposed_us": exposed_us},
        fix=_back(price) if _come_back(price, moved) else replace(_PREFETCH, title=_AHEAD) if aside else _PREFETCH,
        claims=("exposed_copy",),
        at_most="low",  # it blocks nobody: what copying ahead gives back, only a measurement tells
    )


def _back(price: Price) -> Fix | None:
    """The change for what comes back: activations; of states that the host has updated, none is known."""
    fix = round_trip(price)
    return fix if fix is ACTIVATIONS else None


def _come_back(price: Price, moved: float) -> bool:
    """Whether about as much goes to the host first: what comes back is no batch, and cannot be copied ahead."""
    events = price.ops.events
    away = events.of(Category.MEMCPY) & events.named("Memcpy DtoH") & price.ops.links.inside & (events.bytes > 0)
    return 2 * float(events.bytes[away].sum()) > moved * price.ops.steps.count


def _saving(site: CopySite, cost_us: float, price: Price) -> tuple[Saving, bool]:
    """What it saves, and whether that takes a stream of its own."""
    ends: dict[str, Any] = {"model_us": (0.0, cost_us), "bound_us": cost_us}
    if not site.to_device:
        how = "low: the host needs this data now; high: it stays on the device, and the step has no copy"
        gone = [edits.remove(np.array(site.ops_rows, int))]
        return price.saving([], gone, ("exposed_copy",), how, **ends), False
    how = "low: the next kernel needs this data; high: "
    waits, copied = edits.unsync(np.array(site.ops_rows, int)), edits.move(np.array(site.rows, int))
    plain = price.saving([], [waits], ("exposed_copy",), how + "the host launches ahead of the copy", **ends)
    beside = price.saving([], [waits, copied], ("exposed_copy",), how + "the copy overlaps with other work", **ends)
    # A copy on the stream of the kernels takes its time from them, whether or not the host waits.
    ahead = 2 * plain.high_us < beside.high_us
    return (beside if ahead else plain), ahead


def _ours(site: CopySite) -> bool:
    large = site.bytes is None or site.bytes / max(site.calls, 1.0) > SMALL_BYTES
    # Where the trace does not say whether memory was pinned, pinning may be what is missing: not this rule's advice.
    return large and (site.pinned is True or not site.to_device)


def _finding(site: CopySite, cost_us: float, saving: Saving, price: Price, *, ahead: bool) -> Finding:
    blocked_us = site.blocked_us * price.ops.longer
    way = "to" if site.to_device else "from"
    amount = f" of {data_size(site.bytes)}" if site.bytes is not None else ""
    amount += " in all" if amount and site.calls != 1 else ""
    number = "A copy" if site.calls == 1 else f"{count(site.calls)} copies"
    return Finding(
        message=(
            f"{number}{amount} {way} the GPU a step (`{site.op}`): the host waits "
            f"{duration(price.scale.scaled(blocked_us))}, and for {each_step(price, cost_us)} no kernel runs."
        ),
        saving=saving,
        where=(site.where,) if site.where else (),
        facts={"copies": site.calls, "bytes": site.bytes, "blocked_us": blocked_us, "exposed_us": cost_us},
        fix=_PREFETCH if ahead else _fix(site.to_device) if site.to_device else _to_host(site, price),
        claims=("exposed_copy",),
    )


def _to_host(site: CopySite, price: Price) -> Fix:
    if gathers_objects(price, np.array(site.ops_rows, int)):
        return GATHER_TENSORS
    return round_trip(price) or _fix(to_device=False)


def _fix(to_device: bool) -> Fix:
    if to_device:
        return Fix(
            "Pass `non_blocking=True`",
            "exact",
            "x = x.to(device)",
            "x = x.to(device, non_blocking=True)",
            Treatment("non_blocking"),
        )
    return Fix(
        "Keep results on the device and copy them once",
        "exact",
        "outputs.append(out.cpu())",
        "outputs.append(out.detach())\n# after the epoch:\noutputs = torch.cat(outputs).cpu()",
    )


_STEPS = """
    step   [1                       ][2                       ]
    cpu    [T    ][F ][B  ]          [T    ][F ][B  ]
    gpu 7  [C   ]  [K    ][K    ]    [C   ]  [K    ][K    ]
    """

_NO_WAIT = """
    step   [1                       ][2                       ]
    cpu    [T][F][B][S             ] [T][F][B][S             ]
    gpu 7   [C   ][K    ][K       ]   [C   ][K    ][K       ]
    """

EXAMPLES = [
    *OBJECTS,
    *_offloaded.EXAMPLES,
    Example(
        "pinned and non_blocking, on the stream of the kernels",
        draw(_NO_WAIT, us=1000, T=TO, C=H2D_PINNED, S=SYNC),
        saves_us=(0, 5500),
        says=("on the stream of the computation",),
    ),
    Example(
        "the usual loop, whose copy is 4 % of the step: it is pinned, and nobody waits for it",
        draw(
            """
            step   [1                                              ] [2                                              ]
            cpu    [T][F][B][S                                     ] [T][F][B][S                                     ]
            gpu 7   [C][K               ][K                        ]  [C][K               ][K                       ]
            """,
            us=1000,
            T=TO,
            C=replace(H2D_PINNED, fill=0.65),
            S=SYNC,
        ),
        near_miss=True,
    ),
    Example(
        "pinned, but without non_blocking=True",
        draw(_STEPS, us=1000, T=TO_BLOCKING, C=H2D_PINNED),
        saves_us=(0, 6000),
        says=("`aten::to`", "to the GPU"),
    ),
    Example(
        "outputs are moved to the host in every step",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [F ][B  ][T             ] [F ][B  ][T             ]
            gpu 7   [K   ][K    ]             [K   ][K    ]
            gpu 7                [C     ]                  [C     ]
            """,
            us=1000,
            T=TO_BLOCKING,
            C=Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=32 << 20),
        ),
        saves_us=(0, 8000),
        says=("from the GPU",),
    ),
    Example(
        "activations that come back in the backward pass: results that could be kept on the device are others",
        OFFLOADED,
        saves_us=(0, 8000),
        says=("from the GPU",),
        fixes=("save_on_cpu(pin_memory=True)",),
    ),
    Example("gradients and weights of an update on the host, which idle-gpu tells", offloaded(), near_miss=True),
    Example("the same copy with non_blocking=True", draw(_STEPS, us=1000, T=TO, C=H2D_PINNED)),
    Example(
        "a blocking copy of a few bytes",
        draw(_STEPS, us=1000, T=TO_BLOCKING, C=Ev(H2D_PINNED.name, "gpu_memcpy", bytes=4096)),
        near_miss=True,
    ),
]
