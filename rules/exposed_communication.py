"""The step waits for communication between ranks.

## What it looks at
Time in which the device runs communication kernels (all-reduce, all-gather …) and nothing else. On ranks without a
device: time in which the loop only communicates. Communication that runs beside computation costs nothing and is
not counted. What it is for is told apart: gradients of data-parallel ranks, shards, layers or sequences that are split
over ranks, experts; by the names of process groups, and by who asks for it: `fully_shard`, functional collectives as
DTensor uses them, and whether compiled code asks. Sends and receives between the stages of a pipeline are
`pipeline-bubbles`'.

## Why it costs time
While gradients travel, the device computes nothing. Part of it may be waiting for a slower rank: a collective ends
when the last rank has joined.

## How to fix it
DistributedDataParallel reduces gradients in buckets while the backward pass still runs: use it instead of reducing
by hand after the backward; larger buckets where there are many small collectives. With gradient accumulation,
communicate only in the last micro-step (`no_sync()`). Send fewer bytes: a bf16 compression hook. Larger batches per
rank make the same communication rarer per sample.

Layers that are split over ranks communicate within each pass, and nothing of that can wait: split them over fewer
ranks, and the batch over more, where memory allows. Sharded models: keep parameters between forward and backward pass
(`reshard_after_forward=False`), or gather them in bf16. Gathers in compiled code:
`torch._inductor.config.reorder_for_compute_comm_overlap = True` has the compiler ask for them earlier.

## When to leave it
Ranks that wait for a slower one: no bucket size helps there; look at the slow rank first. Communication of sharded
models that the next layer needs at once, where prefetching is on already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

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
    Parallelism,
    RankRecord,
    Replay,
    Saving,
    Scale,
    Steps,
    Trace,
    dataclass,
    draw,
    edits,
    replayed_or,
)

from ._accumulation import NeedlessReductions
from ._collectives import MANY, fewer_bytes
from ._parallel_kinds import finding, message
from ._parallel_kinds_examples import KINDS
from ._unused_search import NeedlessSearch

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
    parallelism: Parallelism | None,
    *,
    min_share: float = 0.05,  # changing how ranks communicate is work: less than 5 % of the step does not repay it
    min_host_share: float = 0.15,  # two ranks on one host that do all they can still wait for each other for 10 %
) -> Iterator[Finding]:
    least = min_share if breakdown.on_device else min_host_share
    # What is not of data-parallel ranks has changes of its own. Stages of a pipeline wait: that is pipeline-bubbles'.
    others = [kind for kind in parallelism.kinds if kind.kind != "data"] if parallelism else []
    side = _side(device_side, host_side, parallelism if others else None)
    # Reductions that no update needs, and those of a search in vain, are other rules': what is left without them.
    kept = 1 - needless.share
    all_us = breakdown.us("exposed_communication" if breakdown.on_device else "communication")
    data_us = max(all_us - sum(kind.exposed_us for kind in others), 0.0)
    exposed_us = max(kept * data_us - search.told_us, 0.0)
    if exposed_us >= least * steps.step_us and (side.calls or not others):
        yield _of_data(
            trace, steps, breakdown, scale, side.scaled(kept), exposed_us, record, replay, mixed=bool(others)
        )
    room_us = _computing_us(breakdown) - max(0.0, side.us + sum(kind.us for kind in others) - all_us)
    for kind in others:
        if kind.kind != "stages" and kind.exposed_us >= least * steps.step_us:
            yield finding(kind, exposed_us, room_us, breakdown, scale, steps, record, replay)


@dataclass(frozen=True, slots=True)
class _Side:
    """Communication of data-parallel ranks: µs, calls and bytes per step; bytes None where not stated."""

    rows: npt.NDArray[np.int64]
    us: float
    calls: float
    bytes: float | None

    def scaled(self, kept: float) -> _Side:
        """That share of it."""
        return replace(
            self, us=kept * self.us, calls=kept * self.calls, bytes=None if self.bytes is None else kept * self.bytes
        )


def _side(device: Communication | None, host: HostCommunication | None, mixed: Parallelism | None) -> _Side:
    """What travels between data-parallel ranks: everything, unless the job is `mixed`."""
    if mixed is not None:
        of_data = mixed.of("data")
        if of_data is None:
            return _Side(np.empty(0, np.int64), 0.0, 0.0, None)
        return _Side(of_data.rows, of_data.us, of_data.calls, of_data.bytes if device else None)
    if device is not None:
        return _Side(np.flatnonzero(device.rows), device.us, device.calls, device.bytes)
    return _Side(np.empty(0, np.int64), host.us if host else 0.0, host.calls if host else 0.0, None)


def _of_data(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    side: _Side,
    exposed_us: float,
    record: RankRecord | None,
    replay: Replay | None,
    mixed: bool,
) -> Finding:
    """The finding about gradients of data-parallel ranks, and whatever else nothing tells apart."""
    hidden_us = max(0.0, side.us - exposed_us)
    merged_us = _merged_us(trace, side, exposed_us) if breakdown.on_device else 0.0
    # What is still exposed can hide behind computation that communication does not cover yet.
    room_us = _computing_us(breakdown) - hidden_us
    # Half the bytes, or only every second step: half of the time, whatever computation can hide.
    high_us = min(exposed_us, max(room_us, merged_us, exposed_us / 2))
    saving = scale.saving(
        min(merged_us, high_us),
        high_us,
        "low: start-up time that buckets of 25 MB merge away; high: what computation can hide, or half of it all",
    )
    if breakdown.on_device:
        saving = _replayed(saving, replay, trace, steps, side, scale.scaled(exposed_us))
    return Finding(
        message=message(
            breakdown.on_device,
            scale.scaled(exposed_us),
            exposed_us / steps.step_us,
            exposed_us,
            side.us,
            side.calls,
            side.bytes,
            " between data-parallel ranks" if mixed else "",
        ),
        saving=saving,
        facts={
            "exposed_us": exposed_us,
            "communication_us": side.us,
            "collectives": side.calls,
            "bytes": side.bytes,
            "hidden_us": hidden_us,
        },
        fix=fewer_bytes(trace, record, side.calls, side.bytes, breakdown.on_device),
        claims=("exposed_communication" if breakdown.on_device else "communication",),
    )


def _replayed(
    modelled: Saving, replay: Replay | None, trace: Trace, steps: Steps, side: _Side, exposed_us: float
) -> Saving:
    """The step replayed with the collectives in buckets, and beside the computation or with half of their bytes.

    Where that hardly shortens the step, something else would set the pace at once, and the range begins at nothing.
    """
    buckets = max(1.0, (side.bytes or 0.0) / _BUCKET_BYTES)
    merged = []
    if side.calls >= MANY and side.bytes is not None:
        calls = np.flatnonzero(trace.events.named("c10d::"))
        merged = [edits.fuse(calls, into=round(buckets * steps.count))]
    how = "low: fewer, larger collectives; high: the step replayed with them beside computation, or half their bytes"
    found = max(
        (
            replayed_or(modelled, replay, merged, [*merged, other], how, exposed_us)
            for other in (edits.move(side.rows), edits.scale(side.rows, 0.5))
        ),
        key=lambda saving: saving.high_us,
    )
    if found.high_us >= 0.5 * modelled.high_us:
        return found
    how = "low: the replayed step stays as long, because the host's launches set its pace; high: once they do not"
    return replace(modelled, low_us=min(found.low_us, modelled.low_us), how=how)


def _computing_us(breakdown: Breakdown) -> float:
    return breakdown.us("compute") if breakdown.on_device else breakdown.us("forward") + breakdown.us("backward")


def _merged_us(trace: Trace, side: _Side, exposed_us: float) -> float:
    """What fewer, larger collectives would save in start-up time alone: µs per step.

    The start-up time is taken from the shortest tenth of the kernels: those that waited for nobody and carried little.
    """
    if side.calls < MANY or side.bytes is None:
        return 0.0
    durations = trace.events.dur_ns[side.rows] / 1e3
    fewer = side.calls - max(1.0, side.bytes / _BUCKET_BYTES)
    exposed_part = exposed_us / side.us if side.us else 0.0
    return float(max(0.0, fewer) * np.quantile(durations, 0.1) * exposed_part)


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
    *KINDS,
]
