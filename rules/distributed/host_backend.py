"""GPU tensors are exchanged through a CPU backend.

## What it looks at
Collectives that gloo or MPI runs on the host while the job trains on devices, and the time in which the device is idle
or only copies during them.

## Why it costs time
The backend copies each tensor to the host, sends it from there, sums it on the CPU, and copies the result back.
None of that uses the links between devices, and the device waits for most of it.

## How to fix it
`dist.init_process_group("nccl")`, one device per rank (`torch.cuda.set_device(local_rank)`). For the few collectives
of tensors on the host use both: `dist.init_process_group("cpu:gloo,cuda:nccl")`.

## When to leave it
Platforms without NCCL, such as Windows. Several ranks that share one device, which NCCL refuses. A separate group for
barriers and objects on the host.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    ALLREDUCE,
    D2H_PAGEABLE,
    GLOO,
    NCCL,
    TO,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Scale,
    Steps,
    Trace,
    draw,
    duration,
    host_collectives,
    intersect,
    subtract,
    total,
)

from ..shared._words import often, percent


def check(
    trace: Trace,
    steps: Steps,
    scale: Scale,
    device: Device,
    busy: GpuBusy,
    *,
    min_share: float = 0.05,  # barriers and exchanged objects take less; gradients of a model take more
) -> Iterator[Finding]:
    # Other vendors' devices have back ends of their own, which this page does not name.
    events = trace.events
    rows = host_collectives(events)
    calls = float((rows & (steps.step_of(events.start_ns) >= 0)).sum()) / steps.count
    if device.kind not in ("cuda", "rocm") or not calls:
        return
    talking = events.covered(rows)
    waiting = subtract(talking, busy.computing)
    waited_us = steps.of_window_us(total(intersect(waiting, steps.window)))
    if waited_us < min_share * steps.step_us:
        return
    yield Finding(
        message=(
            f"A CPU backend exchanges tensors between ranks {often(calls)}: for {duration(scale.scaled(waited_us))} of "
            f"each step ({percent(waited_us / steps.step_us)}) the GPU computes nothing."
        ),
        saving=scale.saving(
            0.0,
            waited_us,
            "high: all of it, if links between the devices make the exchange short; how short was not measured",
        ),
        measured_us=scale.scaled(waited_us),
        facts={
            "waited_us": waited_us,
            "host_communication_us": steps.of_window_us(total(intersect(talking, steps.window))),
            "collectives": calls,
        },
        fix=Fix(
            'Use the "nccl" backend for tensors on the GPU',
            "numerics",
            'dist.init_process_group("gloo")',
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\ndist.init_process_group("cpu:gloo,cuda:nccl")',
        ),
    )


_WAITING = """
    step   [1                             ][2                             ]
    cpu    [F ][B  ][T ]                   [F ][B  ][T ]
    cpu 2              [G               ]              [G               ]
    gpu 7   [K    ][K    ]                  [K    ][K    ]
    gpu 8                [C]                             [C]
    """
_BARRIER = """
    step   [1                             ][2                             ]
    cpu    [F ][B  ]                       [F ][B  ]
    cpu 2    [G               ]              [G               ]
    gpu 7   [K    ][K                    ]  [K    ][K                    ]
    """
_CALLED = """
    step   [1                             ][2                             ]
    cpu    [F ][B  ][A           ]         [F ][B  ][A           ]
    cpu             [C           ]                  [C           ]
    gpu 7   [K    ][K    ]                  [K    ][K    ]
    gpu 20                [N        ]                     [N        ]
    """
_ON_HOST = """
    step   [1                             ][2                             ]
    cpu    [F ][B  ]                       [F ][B  ]
    cpu 2           [G                  ]           [G                  ]
    """

EXAMPLES = [
    Example(
        "gradients of a GPU by gloo",
        draw(_WAITING, us=1000, world_size=2, T=TO, C=D2H_PAGEABLE, G=GLOO),
        saves_us=(0, 18000),
        says=("once a step", "the GPU computes nothing"),
    ),
    Example("gloo beside the computation", draw(_BARRIER, us=1000, world_size=2, G=GLOO), near_miss=True),
    Example(
        "calls of NCCL are annotated on the host",
        draw(_CALLED, us=1000, world_size=2, A=ALLREDUCE, C=Ev("nccl:all_reduce", "user_annotation"), N=NCCL),
        near_miss=True,
    ),
    Example("ranks without a device", draw(_ON_HOST, us=1000, world_size=2, G=GLOO), skipped="no device work"),
]
