"""The GPUs of one process take turns.

## What it looks at
Kernels on several devices in one process: for how long each of them computes, and for how long two compute at the same
time.

## Why it costs time
A model whose layers lie on several devices, as `device_map="auto"` and `.to("cuda:1")` between two layers place them,
computes a batch on one device after the other: the second needs the output of the first, and in the backward pass the
first needs the gradients of the second. Memory adds up that way, speed does not: N devices are as fast as one.

## How to fix it
If the model, its gradients and optimizer state fit into one device, give each device a copy and batches of its own:
`DistributedDataParallel`, one process per device. If they do not fit, shard them (`fully_shard`): all devices then
compute all layers, each for its own batches. Or split each batch into micro-batches, so that the first device computes
the next one while the second computes the previous one (`torch.distributed.pipelining`).

## When to leave it
Generating text for a single user with a model that fits into no device: there is only one batch. Devices that differ,
if the second has only the memory to offer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Intervals,
    Price,
    Trace,
    draw,
    duration,
    intersect,
    is_communication,
    total,
)

from ..shared._words import percent


def check(
    price: Price,
    busy: GpuBusy,
    *,
    min_device_share: float = 0.05,  # of the step: a device that computes less has no part of the model
    min_busy_share: float = 0.3,  # where the devices are idle most of the time, something else holds up all of them
    max_at_once: float = 0.1,  # of what the less busy ones compute: in a pipeline of two micro-batches it is half
) -> Iterator[Finding]:
    steps, step_us = price.ops.steps, price.ops.steps.step_us
    on = {
        device: us
        for device, spans in _computing(price.ops.trace, steps.window).items()
        if (us := steps.of_window_us(total(spans)) * busy.longer) >= min_device_share * step_us
    }
    any_us = steps.of_window_us(total(busy.computing)) * busy.longer
    sum_us, most_us = sum(on.values()), max(on.values(), default=0.0)
    if len(on) < 2 or any_us < min_busy_share * step_us:
        return
    at_once_us = max(sum_us - any_us, 0.0)
    if at_once_us > max_at_once * (sum_us - most_us):
        return
    scale, waits_us = price.scale, max(any_us - sum_us / len(on), 0.0)
    each = ", ".join(f"GPU {device} for {percent(us / step_us)}" for device, us in sorted(on.items()))
    yield Finding(
        message=(
            f"{len(on)} GPUs of one process take turns: {each} of the step, and at the same time for "
            f"{duration(scale.scaled(at_once_us))} of {duration(scale.step_us)}."
        ),
        saving=scale.saving(
            0.0,
            waits_us,
            "high: all of them compute all the time, each its share of the samples; low: the model fits into none of "
            "them and a batch cannot be split",
        ),
        facts={"computing_us": {str(device): us for device, us in on.items()}, "at_once_us": at_once_us},
        fix=_EACH,
        claims=("compute",),
        measured_us=scale.scaled(waits_us),
    )


def _computing(trace: Trace, window: Intervals) -> dict[int, Intervals]:
    """When each device runs kernels other than communication, in W."""
    events = trace.events
    talks = events.rows_with(events.names_where(is_communication))
    kernels = np.flatnonzero(events.of(Category.KERNEL) & (events.device >= 0) & ~talks)
    devices = np.unique(events.device[kernels]).tolist()
    of_each = {device: kernels[events.device[kernels] == device] for device in devices}
    return {device: intersect(events.covered(rows), window) for device, rows in of_each.items()}


_EACH = Fix(
    "Give each GPU batches of its own: DistributedDataParallel, or `fully_shard` if the model fits into none",
    "numerics",
    'model = AutoModelForCausalLM.from_pretrained(name, device_map="auto")',
    "torch.cuda.set_device(local_rank)\nmodel = AutoModelForCausalLM.from_pretrained(name).cuda()\n"
    "model = DistributedDataParallel(model, device_ids=[local_rank])",
)

# The first half of the layers on one device, the second on the other; then the backward pass.
_TURNS = """
    step   [1                             ][2                             ]
    cpu    [F ][H ][B ][C ]                [F ][H ][B ][C ]
    gpu 7   [K    ]             [M     ]    [K    ]             [M     ]
    gpu 8          [L    ][N  ]                    [L    ][N  ]
    """
_AT_ONCE = """
    step   [1                             ][2                             ]
    cpu    [F ][H ][B ][C ]                [F ][H ][B ][C ]
    gpu 7   [K          ][M           ]     [K          ][M           ]
    gpu 8       [L          ][N      ]          [L          ][N      ]
    """


def _drawn(text: str, second: int = 1) -> Drawing:
    other = Ev(GEMM.name, GEMM.cat, args={"device": second})
    return draw(text, us=1000, device="A100", H=FORWARD, C=BACKWARD, L=other, M=GEMM, N=other)


EXAMPLES = [
    Example(
        "half of the layers on each of two devices",
        _drawn(_TURNS),
        saves_us=(0, 14_000),
        says=("2 GPUs of one process take turns",),
        fixes=("DistributedDataParallel",),
    ),
    Example("two devices that compute at the same time", _drawn(_AT_ONCE), near_miss=True),
    Example("two streams of one device", _drawn(_TURNS, second=0), near_miss=True),
    Example(
        "a single device",
        draw(
            """
            step   [1        ][2        ]
            cpu    [F ]       [F ]
            gpu 7   [K    ]    [K    ]
            """,
            us=1000,
        ),
    ),
]
