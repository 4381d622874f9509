"""Buffers are copied from rank 0 before each forward pass.

## What it looks at
The broadcasts that DistributedDataParallel starts at the beginning of each forward pass, and the ops that join all
buffers to one message and copy them back from it. With a run of `advisor run`: which buffers these are, how many bytes,
and whether anything but the broadcast wrote them while steps were recorded.

## Why it costs time
By default DistributedDataParallel sends all buffers of the model in every step, whether they have changed or not, and
the forward pass waits for them. Buffers are not only the running statistics of batch norm: causal masks, positional
tables, anchors and windows are often larger than the gradients, and constant. `persistent=False` only keeps a buffer
out of the checkpoint; it is sent all the same.

## How to fix it
`DistributedDataParallel(model, forward_sync_buffers=False)` (torch 2.13 and newer) sends buffers once, at the start.
Before, `broadcast_buffers=False`: it also leaves out that first copy, so each rank must create the same buffers. The
results are the same if the buffers never change.

If some of them change, as the running statistics of batch norm do, each rank keeps its own from then on. Training uses
the statistics of the batch, so that is no difference if only rank 0 evaluates and saves. To leave out constants alone,
create them where they are used (`torch.ones(T, T, device=x.device).tril()`, `is_causal=True`), or keep them as ordinary
attributes.

## When to leave it
Buffers that each rank updates differently and that the forward pass reads while training, such as a codebook, a queue
of keys or a moving threshold. Ranks that load a checkpoint only on rank 0, after the model was wrapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.api import (
    Drawing,
    Ev,
    Example,
    Exchanges,
    Finding,
    Fix,
    Ints,
    KindOfTalk,
    Price,
    RankRecord,
    RowMask,
    Saving,
    Source,
    Treatment,
    data_size,
    draw,
    edits,
)

from ..shared._places import set_at
from ..shared._words import each_step, often, percent

# Ops around a broadcast: one joins the buffers to a message, the others copy them back.
_JOINS, _COPIES = ("aten::flatten_dense_tensors", "aten::cat"), ("aten::unflatten_dense_tensors", "aten::copy_")
_HOW = (
    "low: each broadcast, and the copies around it, take as long as the fastest 10 %, with no rank late; high: all of "
    "the waiting, if ranks do not wait for each other in the next collective instead"
)
# Names of buffers in a message.
_NAMED = 2


def check(
    exchanges: Exchanges,
    price: Price,
    record: RankRecord | None,
    *,
    min_share: float = 0.02,  # one argument, but it may change what is evaluated: below 2 % it is not worth a thought
    min_constant_share: float = 0.01,  # one argument, same results; all ranks show it, though not all wait equally long
) -> Iterator[Finding]:
    kind = exchanges.parallelism.of("buffers") if exchanges.parallelism else None
    if kind is None:
        return
    packing = _packing(price, kind)
    packed_us = _ends_of_packing(price, packing)
    sent = min(kind.least_us / kind.us, 1.0) if kind.us else 0.0
    sure_us, most_us = kind.exposed_us * sent + packed_us[0], kind.exposed_us + packed_us[1]
    known = (record.settings.ddp if record else None) or {}
    buffers: list[dict[str, Any]] = known.get("buffers") or []
    constant = bool(buffers) and all(one["still"] for one in buffers)
    step_us = price.ops.steps.step_us
    if sure_us < (min_constant_share if constant else min_share) * step_us:
        return
    size = sum(one["bytes"] for one in buffers) or kind.bytes
    yield Finding(
        message=(
            f"DistributedDataParallel copies {_said(buffers, size)} from rank 0 before the forward pass, "
            f"{often(kind.calls)}{_unchanged(buffers)}: {each_step(price, most_us)}."
        ),
        saving=_saving(price, kind, packing, (sure_us, most_us), 1 - sent),
        where=(*set_at(record.settings if record else None, "ddp"), *_registered(buffers)),
        facts={
            "broadcasts": kind.calls,
            "bytes": size,
            "exposed_us": kind.exposed_us,
            "packing_us": packed_us[1],
            "constant": constant,
            "buffers": buffers,
        },
        fix=_fix(constant, known),
        at_most="high" if constant else "medium",
    )


def _packing(price: Price, kind: KindOfTalk) -> Ints:
    """The ops that join the buffers to one message before each broadcast, and copy them back after it."""
    rows, events = price.ops.outermost, price.ops.events
    joins, copies = events.exactly(*_JOINS)[rows], events.exactly(*_COPIES)[rows]
    found: set[int] = set()
    for at in np.flatnonzero(np.isin(rows, kind.ops)).tolist():
        found |= set(_run(joins, at - 1, -1)) | set(_run(copies, at + 1, 1))
    return rows[np.array(sorted(found), np.int64)]


def _ends_of_packing(price: Price, packing: Ints) -> tuple[float, float]:
    """(as in the fastest 10 % of the steps, as recorded) µs per step of these ops."""
    recorded_us = price.spent_us(packing)
    if price.on_device or not len(packing):
        return recorded_us, recorded_us
    steps, events = price.ops.steps, price.ops.events
    in_step = np.bincount(steps.step_of(events.start_ns[packing]), events.dur_ns[packing] / 1e3, steps.count)
    return min(float(np.quantile(in_step, 0.1)), recorded_us), recorded_us


def _run(chosen: RowMask, first: int, by: int) -> Iterator[int]:
    """The places from `first` on, in one direction, that are chosen without a gap."""
    at = first
    while 0 <= at < len(chosen) and chosen[at]:
        yield at
        at += by


def _saving(price: Price, kind: KindOfTalk, packing: Ints, ends_us: tuple[float, float], late: float) -> Saving:
    """late: the share of the broadcasts' time in which a rank waits for another one."""
    if not price.on_device:
        return price.scale.saving(*ends_us, _HOW, "measured")
    gone = [edits.remove(packing)] if len(packing) else []
    return price.saving(
        [*gone, edits.scale(kind.rows, late)],
        [*gone, edits.remove(kind.rows)],
        (),
        _HOW,
        model_us=ends_us,
        bound_us=ends_us[1],
    )


def _said(buffers: Sequence[Mapping[str, Any]], size: float | None) -> str:
    """'12 MB of buffers (`Attention.mask`)'."""
    amount = f"{data_size(size)} of buffers" if size else "the buffers of the model"
    named = ", ".join(f"`{one['name']}`" for one in buffers[:_NAMED])
    more = " and others" if len(buffers) > _NAMED else ""
    return f"{amount} ({named}{more})" if named else amount


def _unchanged(buffers: Sequence[Mapping[str, Any]]) -> str:
    """What is known of their changing."""
    still = [one for one in buffers if one["still"]]
    if not still:
        return ""
    if len(still) == len(buffers):
        return ", although nothing changed them in the recorded steps"
    part = sum(one["bytes"] for one in still) / max(sum(one["bytes"] for one in buffers), 1)
    return f", although nothing changed {percent(part)} of these bytes in the recorded steps"


def _registered(buffers: Sequence[Mapping[str, Any]]) -> tuple[Source, ...]:
    """Where the script registers what never changes, the largest first."""
    known = [one for one in buffers if one["still"] and one.get("file")]
    return tuple(Source(one["file"], one["line"], one["function"]) for one in known[:_NAMED])


def _fix(constant: bool, known: Mapping[str, Any]) -> Fix:
    newer = known.get("forward_sync_buffers") is not None
    argument = "forward_sync_buffers" if newer else "broadcast_buffers"
    after = f"model = DistributedDataParallel(model, {argument}=False)"
    if not known:
        after += "  # from 2.13 on: forward_sync_buffers=False"
    # The older argument leaves out the copy at the start as well.
    alike = "" if newer else ", if every rank creates the same buffers"
    condition = alike if constant else " if only rank 0's buffers are saved and evaluated"
    return Fix(
        f"Set `{argument}=False`{condition}",
        "exact" if constant else "semantics",
        "model = DistributedDataParallel(model)",
        after,
        Treatment("ddp", {argument: False}),
    )


# A forward pass of DistributedDataParallel (W): buffers are joined (C), sent (A, on another thread G), copied back (D).
_ON_HOST = """
    step   [1                             ][2                             ]
    cpu    [W                ]              [W                ]
    cpu    [C][A]   [D][F    ]    [B  ]     [C][A]   [D][F    ]    [B  ]
    cpu 2        [G ]                            [G ]
    """
_ON_DEVICE = """
    step   [1                             ][2                             ]
    cpu    [W        ]                     [W        ]
    cpu    [F ][A ][B ]                    [F ][A ][B ]
    gpu 7   [K   ]           [K    ]       [K   ]           [K    ]
    gpu 20        [N        ]                    [N        ]
    """
_WRAPPED = Ev("DistributedDataParallel.forward", "user_annotation", launches="")
_SENT = Ev("c10d::broadcast_", launches="", dims=[[[1 << 20]]])
_JOINED = Ev("aten::flatten_dense_tensors")
_COPIED = Ev("aten::copy_", times=2)


def _host(sends: Ev = _SENT, wrapped: Ev = _WRAPPED) -> Drawing:
    waits = Ev("gloo:broadcast", "user_annotation", dims=[[1 << 20]])
    return draw(_ON_HOST, us=1000, world_size=2, W=wrapped, C=_JOINED, A=sends, D=_COPIED, G=waits)


def _settings(*still: bool | None, newer: bool = True) -> dict[str, Any]:
    buffers = [{"name": f"Block.b{at}", "tensors": 3, "bytes": 4 << 20, "still": one} for at, one in enumerate(still)]
    known = {"kind": "DDP", "buffers": buffers, "forward_sync_buffers": True if newer else None}
    return {"world_size": 2, "settings": {"ddp": known}}


EXAMPLES = [
    Example(
        "causal masks that never change",
        _host(),
        facts=_settings(True),
        saves_us=(5000, 10500),
        says=("4.19 MB of buffers (`Block.b0`)", "nothing changed them"),
        fixes=("forward_sync_buffers=False",),
    ),
    Example(
        "statistics of batch norm, with torch before 2.13",
        _host(),
        facts=_settings(False, newer=False),
        saves_us=(5000, 10500),
        fixes=("broadcast_buffers=False", "if only rank 0's buffers are saved"),
    ),
    Example(
        "masks and statistics",
        _host(),
        facts=_settings(True, True, True, False),
        saves_us=(5000, 10500),
        says=("75 % of these bytes",),
        fixes=("if only rank 0's buffers are saved",),
    ),
    Example(
        "a trace of a GPU, without a record of the script",
        draw(
            _ON_DEVICE,
            us=1000,
            world_size=8,
            device="H100",
            W=_WRAPPED,
            A=Ev("c10d::broadcast_", launches="collective"),
            N=Ev(
                "ncclDevKernel_broadcast(ncclDevKernelArgsStorage<4096ul>)",
                "kernel",
                args={"Collective name": "broadcast", "dtype": "Float", "In msg nelems": 1_000_000, "Group size": 8},
            ),
        ),
        saves_us=(0, 9500),
        says=("4 MB of buffers",),
        fixes=("broadcast_buffers=False", "forward_sync_buffers=False"),
    ),
    Example(
        "statistics of a few channels, sent within no time",
        draw(
            _ON_HOST,
            us=1000,
            world_size=2,
            W=_WRAPPED,
            C=Ev(_JOINED.name, fill=0.01),
            A=_SENT,
            D=Ev(_COPIED.name, fill=0.01),
            G=Ev("gloo:broadcast", "user_annotation", dims=[[64]], fill=0.01),
        ),
        facts=_settings(False),
        near_miss=True,
    ),
    Example(
        "a model without buffers",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [W                ]              [W                ]
            cpu           [F         ]    [B  ]            [F         ]    [B  ]
            """,
            us=1000,
            world_size=2,
            W=_WRAPPED,
        ),
        facts=_settings(),
    ),
    Example(
        "a broadcast that the script asks for",
        _host(wrapped=Ev("train.py(7): forward", "python_function", launches="")),
        facts=_settings(True),
        near_miss=True,
    ),
]
