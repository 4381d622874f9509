"""What goes to pinned memory of the host and comes back, between the kernels of a step, though no call blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    SYNC,
    TO,
    Category,
    Copies,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Price,
    data_size,
    draw,
    edits,
)

from ..shared._round_trips import ACTIVATIONS, SMALL_BYTES, round_trip
from ..shared._words import each_step

_CLAIMS = ("exposed_copy",)
_HOW = "low: nothing, if it does not fit on the GPU, or where something else waits as long; high: it stays there"
# huggingface.co/docs/transformers/kv_cache: "offloaded" keeps the cache of one layer on the GPU, and fetches the next.
_CACHE = Fix(
    "Keep keys and values on the GPU if they fit, or fewer texts at once",
    "exact",
    'model.generate(**inputs, cache_implementation="offloaded")',
    "model.generate(**inputs)  # the default cache; less memory: shorter or fewer texts, or quantized keys and values",
)


def finding(copies: Copies, price: Price, others: Ints, least_us: float) -> Finding | None:
    """The finding about such copies. others: copies that another rule reports."""
    events, steps = price.ops.events, price.ops.steps
    fix = round_trip(price)
    # In a training what comes back may be what the host has computed of it: states of an optimizer.
    if fix is None or (fix is not ACTIVATIONS and events.named(AUTOGRAD_NODE, "Optimizer.step#").any()):
        return None
    mine = events.of(Category.MEMCPY) & price.ops.links.inside & (events.bytes > SMALL_BYTES)
    mine &= events.named("DtoH (Device -> Pinned", "HtoD (Pinned")
    mine[[row for site in copies.blocking for row in site.rows]] = False
    mine[others] = False
    rows = np.flatnonzero(mine)
    sent = rows[events.named("DtoH")[rows]]
    exposed_us = min(price.breakdown.us_in("exposed_copy", events.covered(rows)), price.measured_us(_CLAIMS))
    if not len(sent) or exposed_us < least_us:
        return None
    gone = [edits.remove(rows)]
    saving = price.saving([], gone, _CLAIMS, _HOW, model_us=(0.0, exposed_us), bound_us=exposed_us)
    if saving.high_us * steps.step_us < least_us * price.scale.step_us:
        return None
    moved, back = (float(events.bytes[some].sum()) / steps.count for some in (sent, np.setdiff1d(rows, sent)))
    return Finding(
        message=(
            f"{data_size(moved)} a step are copied to pinned memory of the host, and {data_size(back)} come back from "
            f"there: for {each_step(price, exposed_us)} no kernel runs meanwhile."
        ),
        saving=saving,
        facts={"bytes": moved, "bytes_back": back, "exposed_us": exposed_us},
        fix=_CACHE if _grows(price, sent) else fix,
        claims=_CLAIMS,
        at_most="medium",  # memory is what it was sent away for: whether there is enough, no trace tells
    )


def _grows(price: Price, sent: Ints) -> bool:
    """Whether each step sends more than the last, and none has a backward pass: what was generated so far."""
    events, steps = price.ops.events, price.ops.steps
    each = np.bincount(price.ops.links.step[sent], weights=events.bytes[sent], minlength=steps.count)
    return steps.count > 1 and bool((np.diff(each) > 0).all()) and not events.named(AUTOGRAD_NODE).any()


def _drawn(more: int) -> Drawing:
    """Three words: what a layer keeps goes to the host on the stream of the kernels, and comes on another."""
    copies: dict[str, Any] = {}
    for step, (down, up) in enumerate((("D", "U"), ("E", "V"), ("G", "W"))):
        size = (8 << 20) + step * more
        copies[down] = Ev("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", bytes=size)
        copies[up] = Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=size)
    return draw(
        """
        step   [1                   ][2                   ][3                   ]
        cpu    [F ][T][T][F ][Y   ]  [F ][T][T][F ][Y   ]  [F ][T][T][F ][Y   ]
        gpu 7   [K ][D   ] [K    ]    [K ][E   ] [K    ]    [K ][G   ] [K    ]
        gpu 9           [U]                  [V]                  [W]
        """,
        us=100,
        T=TO,
        Y=SYNC,
        **copies,
    )


EXAMPLES = [
    Example(
        "keys and values of all words so far go to the host and come back for the next",
        _drawn(4096),
        saves_us=(0, 700),
        says=("come back from there",),
        fixes=("Keep keys and values on the GPU",),
    ),
    Example(
        "what goes to the host and comes back is as large in each step",
        _drawn(0),
        saves_us=(0, 700),
        fixes=("Leave on the GPU what goes to the host and back",),
    ),
]
