"""FSDP all-gathers parameters too late to overlap with computation.

## What it looks at
All-gather kernels of a model in FullyShardedDataParallel while the GPU does nothing else, and the arguments that
decide when the next layer's parameters are gathered, as capture recorded them.

## Why it costs time
A sharded layer has to be gathered from all ranks before it can compute. If the gather starts while the previous layer
still computes, it costs nothing; if it starts afterwards, the GPU waits for it in each layer.

## How to fix it
`backward_prefetch=BackwardPrefetch.BACKWARD_PRE` gathers the next layer before the gradients of the current one are
computed. `forward_prefetch=True` does the same in the forward pass, for hosts that launch slowly and layers that run
in the same order in each step: a host that runs ahead has queued the next gather before the current layer computes,
without it (FullyShardedDataParallel, `forward_prefetch`: "only useful for CPU-bound workloads"). Both hold one more
layer's parameters at a time. FullyShardedDataParallel is deprecated: `fully_shard` replaces it, and prefetches
automatically.

## When to leave it
Models at the limit of their memory: prefetching needs room for one more layer. Gathers that take longer than the layer
they could overlap with: fewer bytes help there (a 16-bit `param_dtype`), or sharding within one host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    Communication,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Price,
    Settings,
    draw,
    edits,
    intersect,
    total,
    union,
)

from ..shared._words import count, each_step

# A kernel at the head of an idle stream begins so soon after its launch; one that waits for others begins later.
_AT_ONCE_NS = 50_000
# Of NCCL's kernels, and of the collective that newer rows name.
_GATHERS = ("allgather", "all_gather", "_allgather_base")


def check(
    price: Price,
    settings: Settings,
    communication: Communication,
    busy: GpuBusy,
    *,
    min_share: float = 0.03,  # one or two arguments to change, but each holds a layer more in memory
) -> Iterator[Finding]:
    late = _late(settings)
    if not late:
        return
    events, steps = price.ops.events, price.ops.steps
    rows = np.flatnonzero(communication.rows & events.named(*_GATHERS))
    if late[1] == "forward":
        rows = _awaited(price, rows)
    gathering = intersect(union(events.start_ns[rows], events.end_ns[rows]), communication.exposed)
    exposed_us = price.breakdown.us_in("exposed_communication", gathering)
    if exposed_us < min_share * steps.step_us:
        return
    computing_us = steps.of_window_us(total(busy.computing)) * busy.longer
    how = "high: the gathers overlap with the previous layer's computation; low: nothing, if the links are the limit"
    hidden_us = 0.0, min(exposed_us, computing_us)
    saving = price.saving([], [edits.move(rows)], (), how, model_us=hidden_us, bound_us=exposed_us)
    yield Finding(
        message=(
            f"For {each_step(price, exposed_us)} the GPU waits for all-gathers, "
            f"{count(len(rows) / steps.count)} a step, and {late[0]}."
        ),
        saving=saving,
        facts={
            "exposed_gather_us": exposed_us,
            "gathers": len(rows) / steps.count,
            "communication_us": communication.us,
        },
        fix=_FIXES[late[1]],
    )


def _awaited(price: Price, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Those that began as soon as the host had launched them: an earlier launch would have let them begin earlier."""
    events, launch = price.ops.events, price.ops.links.launch[rows]
    waited_ns = events.start_ns[rows] - events.end_ns[np.maximum(launch, 0)]
    return rows[(launch >= 0) & (waited_ns < _AT_ONCE_NS)]


def _late(settings: Settings) -> tuple[str, str] | None:
    """What the arguments say of prefetching, and which to change; None where they ask for it, or are unknown."""
    fsdp: dict[str, Any] = settings.fsdp or {}
    if fsdp.get("kind") != "FSDP" or "backward_prefetch" not in fsdp:
        return None  # fully_shard prefetches in the backward pass by itself; its forward order is not recorded
    if fsdp["backward_prefetch"] != "BACKWARD_PRE":
        asked = (
            "only after a layer's gradients are computed" if fsdp["backward_prefetch"] else "only when they are needed"
        )
        return f"the backward pass gathers the next layer's parameters {asked}", "backward"
    if fsdp.get("forward_prefetch") is False:
        return "the forward pass gathers the next layer's parameters only when it reaches that layer", "forward"
    return None


_FIXES = {
    "backward": Fix(
        "Set `backward_prefetch=BackwardPrefetch.BACKWARD_PRE`",
        "exact",
        "FullyShardedDataParallel(model, backward_prefetch=BackwardPrefetch.BACKWARD_POST)",
        "FullyShardedDataParallel(model, backward_prefetch=BackwardPrefetch.BACKWARD_PRE)",
    ),
    "forward": Fix(
        "Set `forward_prefetch=True`",
        "exact",
        "FullyShardedDataParallel(model)",
        "FullyShardedDataParallel(model, forward_prefetch=True)",
    ),
}

_GATHER = Ev(
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "kernel",
    args={"Collective name": "_allgather_base", "dtype": "Float", "In msg nelems": 500_000, "Group size": 2},
)
_ASKED = Ev("c10d::_allgather_base_", launches="collective")


def _drawn(text: str) -> Drawing:
    return draw(text, us=1000, world_size=2, F=FORWARD, B=BACKWARD, A=_ASKED, K=GEMM, N=_GATHER)


_AFTER = """
    step   [1                             ][2                             ]
    cpu    [A][F ][B  ]                    [A][F ][B  ]
    gpu 7            [K     ][K      ]                [K     ][K      ]
    gpu 20 [N       ]                      [N       ]
    """
_QUEUED = """
    step   [1                             ][2                             ]
    cpu    [A][F ][B  ]                    [A][F ][B  ]
    gpu 7            [K     ]                         [K     ]
    gpu 20                    [N       ]                      [N       ]
    """
_BESIDE = """
    step   [1                             ][2                             ]
    cpu    [A][F ][B  ]                    [A][F ][B  ]
    gpu 7      [K           ][K      ]         [K           ][K      ]
    gpu 20     [N       ]                      [N       ]
    """


def _with(backward: str | None, forward: bool) -> dict[str, Any]:
    fsdp = {"kind": "FSDP", "units": 12, "backward_prefetch": backward, "forward_prefetch": forward}
    return {"world_size": 2, "settings": {"fsdp": fsdp}}


EXAMPLES = [
    Example(
        "no prefetching in the backward pass",
        _drawn(_AFTER),
        facts=_with(None, False),
        saves_us=(0, 10000),
        says=("all-gathers, 1 a step", "only when they are needed"),
    ),
    Example(
        "prefetching in the backward pass alone",
        _drawn(_AFTER),
        facts=_with("BACKWARD_PRE", False),
        saves_us=(0, 10000),
        says=("the forward pass gathers",),
    ),
    Example(
        "the forward pass launched its gather long before the stream got to it: the host is ahead",
        _drawn(_QUEUED),
        facts=_with("BACKWARD_PRE", False),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "prefetched already: the links are the limit",
        _drawn(_AFTER),
        facts=_with("BACKWARD_PRE", True),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "not prefetched, and hidden all the same",
        _drawn(_BESIDE),
        facts=_with(None, False),
        saves_us=None,
        near_miss=True,
    ),
    Example("no sharding", _drawn(_AFTER), facts={"world_size": 2, "settings": {}}, saves_us=None),
]
