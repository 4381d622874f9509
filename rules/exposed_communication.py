"""The step waits for communication between ranks.

## What it looks at
Time in which the device runs communication kernels (all-reduce, all-gather …) and nothing else. On ranks without a
device: time in which the loop only communicates. Communication that runs beside computation costs nothing and is
not counted.

## Why it costs time
While gradients travel, the device computes nothing. Part of it may be waiting for a slower rank: a collective ends
when the last rank has joined.

## How to fix it
DistributedDataParallel reduces gradients in buckets while the backward pass still runs: use it instead of reducing
by hand after the backward; larger buckets where there are many small collectives. With gradient accumulation,
communicate only in the last micro-step (`no_sync()`). Send fewer bytes: a bf16 compression hook. Larger batches per
rank make the same communication rarer per sample.

## When to leave it
Ranks that wait for a slower one: no bucket size helps there; look at the slow rank first. Communication of sharded
models that the next layer needs at once, where prefetching is on already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor.api import (
    ALLREDUCE,
    BACKWARD,
    FORWARD,
    GEMM,
    GLOO,
    NCCL,
    Breakdown,
    Communication,
    Ev,
    Example,
    Finding,
    HostCommunication,
    RankRecord,
    Replay,
    Saving,
    Scale,
    Steps,
    Trace,
    draw,
    edits,
    replayed_or,
)

from ._accumulation import NeedlessReductions
from ._collectives import MANY, fewer_bytes
from ._unused_search import NeedlessSearch
from ._words import count, percent, size, time

CONFIRMED = "real traces: a transformer reduced by hand on V100s, checkpointed ResNet on MI300X, DLRM on eight V100s"

# DistributedDataParallel's own default bucket.
_BUCKET_BYTES = 25e6


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    device_side: Communication | None,
    host_side: HostCommunication | None,
    record: RankRecord | None,
    replay: Replay | None,
    needless: NeedlessReductions,
    search: NeedlessSearch,
    *,
    min_share: float = 0.05,  # changing how ranks communicate is work: less than 5 % of the step does not repay it
    min_host_share: float = 0.15,  # two ranks on one host that do all they can still wait for each other for 10 %
) -> Iterator[Finding]:
    part = "exposed_communication" if breakdown.on_device else "communication"
    # Reductions that no update needs, and those of a search in vain, are other rules': what is left without them.
    kept = 1 - needless.share
    exposed_us = max(kept * breakdown.us(part) - search.told_us, 0.0)
    share = exposed_us / steps.step_us
    if share < (min_share if breakdown.on_device else min_host_share):
        return
    side = device_side or host_side
    total_us, calls = (kept * side.us, kept * side.calls) if side else (exposed_us, 0.0)
    hidden_us = max(0.0, total_us - exposed_us)
    merged_us = _merged_us(trace, device_side, exposed_us)
    # What is still exposed can hide behind computation that communication does not cover yet.
    room_us = _computing_us(breakdown) - hidden_us
    # Half the bytes, or only every second step: half of the time, whatever computation can hide.
    high_us = min(exposed_us, max(room_us, merged_us, exposed_us / 2))
    bytes_ = kept * device_side.bytes if device_side and device_side.bytes is not None else None
    saving = scale.saving(
        min(merged_us, high_us),
        high_us,
        "low: start-up time that buckets of 25 MB merge away; high: what computation can hide, or half of it all",
    )
    if device_side is not None:
        saving = _replayed(saving, replay, trace, steps, device_side, scale.scaled(exposed_us))
    yield Finding(
        message=_message(breakdown.on_device, scale.scaled(exposed_us), share, total_us, exposed_us, calls, bytes_),
        saving=saving,
        facts={
            "exposed_us": exposed_us,
            "communication_us": total_us,
            "collectives": calls,
            "bytes": bytes_,
            "hidden_us": hidden_us,
        },
        fix=fewer_bytes(trace, record, calls, bytes_, breakdown.on_device),
        claims=(part,),
    )


def _replayed(
    modelled: Saving, replay: Replay | None, trace: Trace, steps: Steps, device_side: Communication, exposed_us: float
) -> Saving:
    """The step replayed with the collectives in buckets, and beside the computation or with half of their bytes.

    Where that hardly shortens the step, something else would set the pace at once, and the range begins at nothing.
    """
    rows = np.flatnonzero(device_side.rows)
    buckets = max(1.0, (device_side.bytes or 0.0) / _BUCKET_BYTES)
    merged = []
    if device_side.calls >= MANY and device_side.bytes is not None:
        calls = np.flatnonzero(trace.events.named("c10d::"))
        merged = [edits.fuse(calls, into=round(buckets * steps.count))]
    how = "low: fewer, larger collectives; high: the step replayed with them beside computation, or half their bytes"
    found = max(
        (
            replayed_or(modelled, replay, merged, [*merged, other], how, exposed_us)
            for other in (edits.move(rows), edits.scale(rows, 0.5))
        ),
        key=lambda saving: saving.high_us,
    )
    if found.high_us >= 0.5 * modelled.high_us:
        return found
    how = "low: the replayed step stays as long, because the host's launches set its pace; high: once they do not"
    return replace(modelled, low_us=min(found.low_us, modelled.low_us), how=how)


def _computing_us(breakdown: Breakdown) -> float:
    return breakdown.us("compute") if breakdown.on_device else breakdown.us("forward") + breakdown.us("backward")


def _merged_us(trace: Trace, communication: Communication | None, exposed_us: float) -> float:
    """What fewer, larger collectives would save in start-up time alone: µs per step.

    The start-up time is taken from the shortest tenth of the kernels: those that waited for nobody and carried little.
    """
    if communication is None or communication.calls < MANY or communication.bytes is None:
        return 0.0
    durations = trace.events.dur_ns[communication.rows] / 1e3
    fewer = communication.calls - max(1.0, communication.bytes / _BUCKET_BYTES)
    exposed_part = exposed_us / communication.us if communication.us else 0.0
    return float(max(0.0, fewer) * np.quantile(durations, 0.1) * exposed_part)


def _message(
    on_device: bool,
    exposed_us: float,
    share: float,
    total_us: float,
    part_us: float,
    calls: float,
    bytes_: float | None,
) -> str:
    who = "the GPU only communicates" if on_device else "the loop only communicates"
    amount = f" of {size(bytes_)}" if bytes_ is not None else ""
    hidden = 1 - part_us / total_us if total_us else 0.0
    beside = "none" if hidden < 0.01 else percent(hidden)
    collectives = "1 collective" if calls == 1 else f"{count(calls)} collectives"
    return (
        f"For {time(exposed_us)} of each step ({percent(share)}) {who}: {collectives} a step{amount}, "
        f"with {beside} of their time beside computation."
    )


_AFTER_BACKWARD = """
    step   [1                             ][2                             ]
    cpu    [F ][B  ][A ]                   [F ][B  ][A ]
    gpu 7   [K    ][K    ]                  [K    ][K    ]
    gpu 20                [N        ]                     [N        ]
    """

EXAMPLES = [
    Example(
        "gradients are reduced after the backward pass",
        draw(_AFTER_BACKWARD, us=1000, world_size=2, F=FORWARD, B=BACKWARD, A=ALLREDUCE, K=GEMM, N=NCCL),
        saves_us=(0, 11000),
        says=("none of their time beside computation", "1 collective a step of 4 MB"),
    ),
    Example(
        "hundreds of small collectives",
        draw(
            _AFTER_BACKWARD,
            us=1000,
            world_size=2,
            F=FORWARD,
            B=BACKWARD,
            A=Ev(ALLREDUCE.name, launches="collective", times=100),
            K=GEMM,
            N=Ev(NCCL.name, "kernel", times=100, args=NCCL.args | {"In msg nelems": 1000}),
        ),
        saves_us=(3000, 12000),
        says=("100 collectives",),
    ),
    Example(
        "a CPU rank reduces with gloo",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [F ][B  ]             [F ][B  ]
            cpu 2           [G        ]           [G        ]
            """,
            us=1000,
            world_size=2,
            F=FORWARD,
            B=BACKWARD,
            G=GLOO,
        ),
        saves_us=(0, 11000),
        says=("the loop only communicates",),
    ),
    Example(
        "the same all-reduce beside the backward pass",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F ][B  ][A ]                   [F ][B  ][A ]
            gpu 7   [K    ][K                    ]  [K    ][K                    ]
            gpu 20            [N        ]                     [N        ]
            """,
            us=1000,
            world_size=2,
            F=FORWARD,
            B=BACKWARD,
            A=ALLREDUCE,
            K=GEMM,
            N=NCCL,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "one rank alone",
        draw(
            """
            step   [1              ][2              ]
            cpu    [F ][B  ]        [F ][B  ]
            gpu 7   [K    ][K    ]   [K    ][K    ]
            """,
            us=1000,
            F=FORWARD,
            B=BACKWARD,
            K=GEMM,
        ),
        saves_us=None,
    ),
]
