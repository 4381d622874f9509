"""find_unused_parameters=True is set, although all parameters are used.

## What it looks at
The search that DistributedDataParallel makes with `find_unused_parameters=True`, the all-reduce that tells the other
ranks what it found, and whether any parameter was without a gradient.

## Why it costs time
Before each backward pass the search traverses the whole graph of the forward pass. A map with an entry for each
parameter is then reduced over all ranks, and on a GPU copied to the host, which waits for it.

## How to fix it
Remove `find_unused_parameters=True`. If ranks use different parts of the model in different steps, it is needed; if the
same parts are unused in every step, `static_graph=True` searches once.

## When to leave it
Models whose forward pass takes different paths from step to step: without the search, an unused parameter stops
the training with an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    GLOO,
    GRADIENT_STORE,
    Breakdown,
    Ev,
    Example,
    Finding,
    Fix,
    NeedlessSearch,
    Scale,
    Settings,
    Steps,
    Treatment,
    draw,
    duration,
)

from ..shared._places import set_at
from ..shared._words import count, often

CONFIRMED = "measured pair on a CPU: two ranks, a deep and narrow network, with and without the search"


def check(
    search: NeedlessSearch,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    settings: Settings | None,
    *,
    min_share: float = 0.003,  # one argument to remove; the search itself is short, the reduction may not be
) -> Iterator[Finding]:
    if not search.parameters:
        return
    parts = ("backward", "forward", "other_ops", "host", "communication", "exposed_communication", "idle_host")
    bound_us = sum(breakdown.us(part) for part in parts if part in breakdown.intervals)
    # Where ranks share a host, their communication also takes cores from the computation that overlaps with it.
    most_us = 0.0 if breakdown.on_device else search.telling_us
    high_us = min(search.search_us + max(search.told_us + search.spread_us, most_us), bound_us)
    # Without a device all ranks compute no sooner than their searches are over.
    least_us = 0.0 if breakdown.on_device else search.search_us
    if high_us < min_share * steps.step_us:
        return
    yield Finding(
        message=(
            f"DistributedDataParallel searches for unused parameters {often(search.passes)}, and all "
            f"{count(search.parameters)} are used: {duration(scale.scaled(search.search_us))} of each step, and "
            f"{duration(scale.scaled(search.told_us))} for the all-reduce of its result."
        ),
        saving=scale.saving(
            min(least_us + max(search.told_us - search.spread_us, 0.0), high_us),
            high_us,
            "how much later the ranks finish because of the all-reduce of its result, as far as these few steps show, "
            "and the search, on a device at most; high, without a device: all the time of these all-reduces",
        ),
        where=set_at(settings, "ddp"),
        facts={"parameters": search.parameters, "search_us": search.search_us, "reduction_us": search.told_us},
        fix=Fix(
            "Remove `find_unused_parameters=True`",
            "exact",
            "DistributedDataParallel(model, find_unused_parameters=True)",
            "DistributedDataParallel(model)",
            Treatment("ddp", {"find_unused_parameters": False}),
        ),
        at_most="medium",
    )


_REDUCER = "torch.distributed.ddp.reducer::"
_ALL = Ev(f"{_REDUCER}copy_bucket_to_grad", times=2)
_STORED = Ev(GRADIENT_STORE, times=2)
_SEARCHED = Ev(f"{_REDUCER}search_unused_parameters")
_STEPS = """
    step   [1                             ][2                             ]
    cpu    [F   ][S][B    ][T    ][E ]      [F   ][S][B    ][T    ][E ]
    cpu 2                     [G     ]                       [G    ]
    """

EXAMPLES = [
    Example(
        "all parameters are used",
        draw(_STEPS, us=100, S=_SEARCHED, T=_STORED, E=_ALL, G=Ev(GLOO.name, GLOO.cat, dims=[[2]]), world_size=2),
        saves_us=(500, 1300),
        says=("all 2 are used",),
    ),
    Example(
        "the ranks tell each other while their gradients still travel",
        draw(
            _STEPS
            + """
    cpu 3                    [H         ]                   [H         ]
    """,
            us=100,
            S=_SEARCHED,
            T=_STORED,
            E=_ALL,
            G=Ev(GLOO.name, GLOO.cat, dims=[[2]]),
            H=Ev(GLOO.name, GLOO.cat, dims=[[4096]]),
            world_size=2,
        ),
        saves_us=(0, 1050),
        says=("0 µs for the all-reduce",),
    ),
    Example(
        "one of three parameters is unused",
        draw(
            _STEPS,
            us=100,
            S=_SEARCHED,
            T=_STORED,
            E=Ev(_ALL.name, times=3),
            G=Ev(GLOO.name, GLOO.cat, dims=[[3]]),
            world_size=2,
        ),
        near_miss=True,
    ),
    Example(
        "no search",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F   ]   [B    ][T    ][E ]      [F   ]   [B    ][T    ][E ]
            cpu 2                     [G     ]                       [G    ]
            """,
            us=100,
            T=_STORED,
            E=_ALL,
            G=Ev(GLOO.name, GLOO.cat, dims=[[128]]),
            world_size=2,
        ),
    ),
]
