"""FSDP all-gathers parameters too late to overlap with computation.

## What it looks at
All-gather kernels of a model in FullyShardedDataParallel while the GPU does nothing else, and when the next layer's
parameters are gathered: by the arguments, as capture recorded them, else by the ranges in which the gathers of the
backward pass are launched. With `BACKWARD_PRE` they are launched in `_pre_backward_prefetch`, with `BACKWARD_POST` in
`_post_backward_prefetch`, and without prefetching one in each layer's `_pre_backward_hook`.

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

from advisor.api import (
    Communication,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Ints,
    Missing,
    Price,
    RankRecord,
    Settings,
    draw,
    duration,
    edits,
    intersect,
    total,
)

from ...shared._words import count, each_step

# A kernel at the head of an idle stream begins so soon after its launch; one that waits for others begins later.
_AT_ONCE_NS = 50_000
# Of NCCL's kernels, and of the collective that newer rows name.
_GATHERS = ("allgather", "all_gather", "_allgather_base")
# torch/distributed/fsdp/_runtime_utils.py: the ranges of _pre_backward_hook and _post_backward_reshard, and the
# handles that _get_handle_to_prefetch names in each of them.
_OWN = "FullyShardedDataParallel."
_HOOK, _PRE = f"{_OWN}_pre_backward_hook", f"{_OWN}_pre_backward_prefetch"
_POST = f"{_OWN}_post_backward_prefetch"
# What gathers are queued behind is named where it is more of the wait than this part of theirs.
_TOLD = 0.1
# The first layer of the backward pass has none before it that could gather it.
_FIRST = 1


def check(
    price: Price,
    record: RankRecord | None,
    communication: Communication,
    busy: GpuBusy,
    *,
    min_share: float = 0.03,  # one or two arguments to change, but each holds a layer more in memory
) -> Iterator[Finding]:
    events, steps = price.ops.events, price.ops.steps
    rows = np.flatnonzero(communication.rows & events.named(*_GATHERS))
    hooked, seen = _backward(price, rows)
    late = _late(record.settings) if record and record.settings.fsdp else seen
    if not late:
        if record is None and len(rows) and events.named(_OWN).any() and not events.named(_HOOK, _PRE, _POST).any():
            raise Missing("no ranges of the backward pass say when FullyShardedDataParallel gathers parameters")
        return
    if late[1] == "forward":
        rows = _awaited(price, rows)
    elif len(hooked):
        rows = hooked
    exposed_us = _exposed_us(price, communication, rows)
    if exposed_us < min_share * steps.step_us:
        return
    computing_us = steps.of_window_us(total(busy.computing)) * busy.longer
    how = "high: the gathers overlap with the previous layer's computation; low: nothing, if the links are the limit"
    # What a gather is queued behind is waited for with it; gathered before, neither is.
    late_rows = hooked if late[1] == "backward" else rows[:0]
    moved = np.union1d(rows, _queued_behind(price, communication, late_rows))
    # Links that are busy all the time carry no more in a step, whenever they are asked.
    waited_us = _exposed_us(price, communication, moved)
    bound_us = min(waited_us, max(steps.step_us - communication.us, 0.0))
    hidden_us = 0.0, min(bound_us, computing_us)
    if hidden_us[1] < min_share * steps.step_us:
        return
    saving = price.saving([], [edits.move(moved)], (), how, model_us=hidden_us, bound_us=bound_us)
    before_us = waited_us - exposed_us
    queued = f", and {duration(price.scale.scaled(before_us))} for the collectives right before them"
    yield Finding(
        message=(
            f"For {each_step(price, exposed_us)} the GPU waits for all-gathers, "
            f"{count(len(rows) / steps.count)} a step{queued if before_us > _TOLD * exposed_us else ''}: {late[0]}."
        ),
        saving=saving,
        facts={
            "exposed_gather_us": exposed_us,
            "gathers": len(rows) / steps.count,
            "communication_us": communication.us,
        },
        fix=_FIXES[late[1]],
        measured_us=price.scale.scaled(waited_us),
    )


def gathers_late(price: Price, record: RankRecord | None, rows: Ints) -> bool:
    """Whether this rule has something to say of these gathers, before others do."""
    return bool(_late(record.settings) if record and record.settings.fsdp else _backward(price, rows)[1])


def _exposed_us(price: Price, communication: Communication, rows: Ints) -> float:
    """Recorded µs per step in which the device runs these and nothing else."""
    events = price.ops.events
    spans = intersect(events.covered(rows), communication.exposed)
    return price.breakdown.us_in("exposed_communication", spans)


def _queued_behind(price: Price, communication: Communication, late: Ints) -> Ints:
    """The collectives at whose end these gathers begin, on the same stream: gradients of the layer before."""
    events = price.ops.events
    rows = np.flatnonzero(communication.rows & price.ops.trace.device_work)
    rows = rows[np.lexsort((events.start_ns[rows], events.stream[rows], events.device[rows]))]
    first, then = rows[:-1], rows[1:]
    same = (events.stream[first] == events.stream[then]) & (events.device[first] == events.device[then])
    at_once = events.start_ns[then] - events.end_ns[first] < _AT_ONCE_NS
    queued: Ints = first[same & at_once & np.isin(then, late)]
    return queued


def _backward(price: Price, rows: Ints) -> tuple[Ints, tuple[str, str] | None]:
    """Gathers that hooks of the backward pass launch late, and what that says of prefetching there; None if nothing.

    A hook gathers its own layer, unless that was prefetched; a second gather in it prefetches, whatever its range.
    """
    events, launch, nesting = price.ops.events, price.ops.links.launch[rows], price.ops.nesting
    asked = nesting.ancestor_of(launch, events.named(_HOOK, _PRE, _POST))
    named = {name: (asked >= 0) & events.named(name)[np.maximum(asked, 0)] for name in (_HOOK, _PRE, _POST)}
    if named[_POST].any():
        return rows[named[_POST]], _LATE["BACKWARD_POST"]
    hooked = rows[named[_HOOK]]
    alone = not named[_PRE].any() and len(np.unique(asked[named[_HOOK]])) == len(hooked)
    several = len(hooked) > _FIRST * price.ops.steps.count
    return hooked, _LATE[None] if alone and several else None


def _awaited(price: Price, rows: Ints) -> Ints:
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
        return _LATE["BACKWARD_POST" if fsdp["backward_prefetch"] else None]
    if fsdp.get("forward_prefetch") is False:
        return "the forward pass gathers the next layer's parameters only when it reaches that layer", "forward"
    return None


_GATHERED = "the backward pass gathers the next layer's parameters only"
_LATE = {
    None: (f"{_GATHERED} when they are needed", "backward"),
    "BACKWARD_POST": (f"{_GATHERED} after a layer's gradients are computed", "backward"),
}
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
    return draw(text, us=1000, world_size=2, A=_ASKED, N=_GATHER)


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


# The backward pass of two layers, with the ranges in which their gathers are launched.
_HOOKS = """
    step   [1                                     ][2                                     ]
    cpu    [F ][H   ][B ][H   ][B ]                [F ][H   ][B ][H   ][B ]
    cpu         [A]       [A]                           [A]       [A]
    gpu 7   [K  ]         [K  ]       [K  ]         [K  ]         [K  ]       [K  ]
    gpu 20        [N     ]     [N     ]                   [N     ]     [N     ]
    """


def _hooked(text: str, name: str = _HOOK) -> Drawing:
    hook = Ev(name, "user_annotation")
    return draw(text, us=1000, world_size=2, A=_ASKED, N=_GATHER, H=hook)


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
        near_miss=True,
    ),
    Example(
        "prefetched already: the links are the limit", _drawn(_AFTER), facts=_with("BACKWARD_PRE", True), near_miss=True
    ),
    Example("not prefetched, and hidden all the same", _drawn(_BESIDE), facts=_with(None, False), near_miss=True),
    Example(
        "each hook of the backward pass gathers its own layer, in a trace without recorded arguments",
        _hooked(_HOOKS),
        saves_us=(0, 17000),
        says=("all-gathers, 2 a step", "only when they are needed"),
        fixes=("BACKWARD_PRE",),
    ),
    Example(
        "the next layer is gathered behind the gradients of the last, in a trace without recorded arguments",
        _hooked(_HOOKS, _POST),
        saves_us=(0, 17000),
        says=("only after a layer's gradients are computed",),
        fixes=("BACKWARD_PRE",),
    ),
    Example("gathers in the range that prefetches: the links are the limit", _hooked(_HOOKS, _PRE), near_miss=True),
    Example(
        "one layer in the backward pass: none before it could gather it",
        _hooked(
            """
            step   [1                         ][2                         ]
            cpu    [F ][H   ][B ]              [F ][H   ][B ]
            cpu         [A]                         [A]
            gpu 7   [K  ]         [K  ]         [K  ]         [K  ]
            gpu 20        [N     ]                    [N     ]
            """
        ),
        near_miss=True,
    ),
    Example(
        "each hook gathers its own layer, and the links are busy all the time",
        _hooked(
            """
            step   [1                                     ][2                                     ]
            cpu    [H   ][B ][H   ][B ]                    [H   ][B ][H   ][B ]
            cpu    [A]       [A]                           [A]       [A]
            gpu 7                 [K  ]              [K  ]                [K  ]              [K  ]
            gpu 20 [N           ][N                       ][N           ][N                       ]
            """
        ),
        near_miss=True,
    ),
    Example("no sharding", _drawn(_AFTER), facts={"world_size": 2, "settings": {}}),
]
