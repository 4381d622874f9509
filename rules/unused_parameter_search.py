"""Unused parameters are searched for in every step, and there are none.

## What it looks at
The search that DistributedDataParallel makes with `find_unused_parameters=True`, the all-reduce that tells the other
ranks what it found, and whether any parameter was without a gradient.

## Why it costs time
Before each backward pass the search walks through the whole graph of the forward pass. A map with an entry for each
parameter is then reduced over all ranks, and on a GPU copied to the host, which waits for it.

## How to fix it
Leave `find_unused_parameters=True` out. If the ranks use different parts of the model in turns, it is needed; if the
same parts are unused in every step, `static_graph=True` searches once.

## When to leave it
Models whose forward pass takes different ways from step to step: a parameter that is unused without the search stops
the training with an error.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from advisor.api import (
    BACKWARD,
    FORWARD,
    GLOO,
    Breakdown,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Scale,
    Steps,
    Trace,
    draw,
    is_communication,
)

from ._operands import dims_of, sizes
from ._places import often
from ._words import count, time

CONFIRMED = "real trace: two ranks on a CPU; what leaving it out gained was within the noise of the measurement"

_SEARCH = "reducer::search_unused_parameters"
_SINK = ("_DDPSink", "_DDPSinkBackward")
# One row for each parameter of the model, used or not.
_EACH = "reducer::copy_bucket_to_grad"
_STORES = "torch::autograd::AccumulateGrad"


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    *,
    min_share: float = 0.003,  # one argument to leave out; the search itself is short, the reduction may not be
) -> Iterator[Finding]:
    events = trace.events
    search = events.named(_SEARCH)
    if not search.any():
        return
    inside = steps.step_of(events.start_ns) >= 0
    search &= inside
    passes = int(search.sum())
    all_of_them = int((events.named(_EACH) & inside).sum())
    used = int((events.exactly(_STORES) & events.of(Category.CPU_OP) & inside).sum())
    # Without a row for each parameter, or with steps cut through, nobody knows that all were used.
    if not passes or not all_of_them or used != all_of_them or used % passes:
        return
    parameters = used // passes
    host_us = _us(trace, steps, (search | events.exactly(*_SINK)) & inside)
    told_us = _told_us(trace, steps, _reductions(trace, parameters) & inside)
    parts = ("backward", "forward", "other_ops", "host", "communication", "exposed_communication", "idle_host")
    bound_us = sum(breakdown.us(part) for part in parts if part in breakdown.intervals)
    high_us = min(host_us + told_us, bound_us)
    if high_us < min_share * steps.step_us:
        return
    yield Finding(
        message=(
            f"DistributedDataParallel searches for unused parameters {often(passes / steps.count)}, and all "
            f"{count(parameters)} are used: {time(scale.scaled(host_us))} of each step, and "
            f"{time(scale.scaled(told_us))} for telling the other ranks."
        ),
        saving=scale.saving(
            0.0, high_us, "low: it runs beside other work; high: the search and the reduction of what it found"
        ),
        facts={"parameters": parameters, "search_us": host_us, "reduction_us": told_us},
        fix=Fix(
            "Leave the search out",
            "exact",
            "DistributedDataParallel(model, find_unused_parameters=True)",
            "DistributedDataParallel(model)",
        ),
        at_most="medium",
    )


def _us(trace: Trace, steps: Steps, rows: npt.NDArray[np.bool_]) -> float:
    return steps.per_step_us(float(trace.events.dur_ns[rows].sum()))


def _told_us(trace: Trace, steps: Steps, rows: npt.NDArray[np.bool_]) -> float:
    """The shortest reduction for each: what longer ones take is waiting for other ranks, which would be waited for."""
    durations = trace.events.dur_ns[rows]
    return steps.per_step_us(float(durations.min() * len(durations))) if len(durations) else 0.0


def _reductions(trace: Trace, parameters: int) -> npt.NDArray[np.bool_]:
    """Communication of as many numbers as there are parameters: kernels on a device, else the host's own rows."""
    events = trace.events
    kind = events.of(Category.KERNEL) if events.of(Category.KERNEL).any() else events.of(Category.ANNOTATION)
    talk = np.array([is_communication(name) for name in events.names] or [False])[events.name] & kind
    told = np.zeros(len(events), bool)
    for row in np.flatnonzero(talk).tolist():
        of_kernel = events.collective[row]
        elements = events.collective_table[of_kernel].in_elements if of_kernel >= 0 else -1
        told[row] = elements == parameters or sizes(dims_of(events, row), 0) == (parameters,)
    return told


_REDUCER = "torch.distributed.ddp.reducer::"
_ALL = Ev(f"{_REDUCER}copy_bucket_to_grad", times=2)
_STORED = Ev(_STORES, times=2)
_SEARCHED = Ev(f"{_REDUCER}search_unused_parameters")
_STEPS = """
    step   [1                             ][2                             ]
    cpu    [F   ][S][B    ][T    ][E ]      [F   ][S][B    ][T    ][E ]
    cpu 2                     [G     ]                       [G    ]
    """

EXAMPLES = [
    Example(
        "all parameters are used",
        draw(
            _STEPS,
            us=100,
            F=FORWARD,
            S=_SEARCHED,
            B=BACKWARD,
            T=_STORED,
            E=_ALL,
            G=Ev(GLOO.name, GLOO.cat, dims=[[2]]),
            world_size=2,
        ),
        saves_us=(0, 1200),
        says=("all 2 are used",),
    ),
    Example(
        "one of three parameters is unused",
        draw(
            _STEPS,
            us=100,
            F=FORWARD,
            S=_SEARCHED,
            B=BACKWARD,
            T=_STORED,
            E=Ev(_ALL.name, times=3),
            G=Ev(GLOO.name, GLOO.cat, dims=[[3]]),
            world_size=2,
        ),
        saves_us=None,
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
            F=FORWARD,
            B=BACKWARD,
            T=_STORED,
            E=_ALL,
            G=Ev(GLOO.name, GLOO.cat, dims=[[128]]),
            world_size=2,
        ),
        saves_us=None,
    ),
]
