"""The kind of parallelism does not fit the model or the devices.

## What it looks at
What each device holds from step to step (trained parameters, gradients, the optimizer's state), its peak memory and
its capacity, how many devices there are, and the time in which they only communicate. All of it as capture recorded it.

## Why it costs time
Data parallelism keeps the whole state on each device: at the memory's limit the batch cannot grow. Sharding the state
frees that memory and pays with communication, which is wasted time if everything would fit. One device that is busy all
the time while others are idle limits the whole run.

## How to fix it
Data parallel (DDP): if one device holds the state and a batch; it communicates least. Only the optimizer's state
sharded (`ZeroRedundancyOptimizer`): if that much is missing. Everything sharded (`fully_shard`): if it is the state
that fills the memory; each layer is gathered when it is needed, so one layer has to fit in addition to the activations.
Tensor parallel: if one layer does not fit or is too slow on one device, and only over the fastest links, because it
communicates within each layer. Pipeline parallel: over slow links, with many micro-batches in flight.

## When to leave it
Memory that is full of activations: smaller batches or checkpointing free it, sharding does not. Devices that are
visible but reserved for other users. Models that must fit where they will be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    ALLREDUCE,
    NCCL,
    Device,
    Drawing,
    Example,
    Finding,
    Fix,
    Missing,
    Price,
    RankRecord,
    data_size,
    draw,
    duration,
)

from ..shared._words import count, percent
from ._memory_needs import Needs, largest_unit, needs

# After a change so much of the memory may be taken: the allocator needs the rest for what it cannot join.
_ROOM = 0.8
# A sharded step gathers parameters for the forward and again for the backward pass, and scatters gradients: kept
# between the passes, they are gathered once, and one of three equal messages is gone.
_SPARED = 1 / 3


def check(
    record: RankRecord,
    device: Device,
    price: Price,
    *,
    min_taken: float = 0.85,  # of the memory: above, a batch of another shape may not fit; below, it is no limit
    min_freed: float = 0.10,  # less than a tenth of the memory does not allow a larger batch
    min_exposed: float = 0.10,  # sharding that communicates for less than a tenth of the step costs little
    min_busy: float = 0.80,  # a device that is idle for more than a fifth of the step is limited by something else
) -> Iterator[Finding]:
    if not price.on_device:
        raise Missing(device.why)
    known = needs(record)
    if known is None:
        raise Missing("memory, parameters or optimizer were not recorded for a device; capture with `advisor run`")
    if record.settings.fsdp:
        yield from _needless_sharding(record, known, price, min_exposed)
        return
    many = record.world_size if record.world_size > 1 else len(record.devices)
    if many < 2:
        return
    taken = known.peak / known.capacity
    busy = sum(price.breakdown.share(part) for part in _BUSY)
    if taken >= min_taken and known.state * (1 - 1 / many) >= min_freed * known.capacity:
        yield _sharded(record, known, many)
    elif record.world_size == 1 and device.count == 1 and taken < min_taken and busy >= min_busy:
        yield _replicated(known, many, busy)


_BUSY = ("compute", "exposed_communication", "exposed_copy")


def _sharded(record: RankRecord, known: Needs, many: int) -> Finding:
    """The state is what fills the memory: shard as little of it as is enough."""
    optimizer_left = known.peak - known.optimizer * (1 - 1 / many)
    unit = largest_unit(record) or 0.0
    all_left = known.peak - known.state * (1 - 1 / many) + unit
    enough = record.world_size > 1 and optimizer_left <= _ROOM * known.capacity
    left, what = (optimizer_left, "the optimizer's state") if enough else (all_left, "all of it")
    return Finding(
        message=(
            f"{data_size(known.peak)} of {data_size(known.capacity)} are used, {data_size(known.state)} of it "
            f"replicated on every device ({known.said()}): with {what} sharded over {many} devices it would be "
            f"{data_size(left)}."
        ),
        facts=_facts(known, many) | {"optimizer_sharded_peak_bytes": optimizer_left, "sharded_peak_bytes": all_left},
        fix=_ZERO if enough else _FSDP,
    )


def _replicated(known: Needs, many: int, share: float) -> Finding:
    return Finding(
        message=(
            f"1 of {many} visible devices computes and is busy for {percent(share)} of the step: the state of "
            f"{data_size(known.state)} ({known.said()}) and a batch fit on each, so data parallelism is suitable."
        ),
        facts=_facts(known, many) | {"busy_share": share},
        fix=_DDP,
        at_most="low",
    )


def _needless_sharding(record: RankRecord, known: Needs, price: Price, min_exposed: float) -> Iterator[Finding]:
    """Parameters are dropped after the forward pass, though they could stay."""
    breakdown, scale = price.breakdown, price.scale
    fsdp = record.settings.fsdp or {}
    exposed_us, share = breakdown.us("exposed_communication"), breakdown.share("exposed_communication")
    if fsdp.get("kind") != "FSDP2" or fsdp.get("reshard_after_forward") is not True or share < min_exposed:
        return
    kept = known.parameters * (1 - 1 / max(record.world_size, 1))
    if known.peak + kept > _ROOM * known.capacity:
        return
    yield Finding(
        message=(
            f"Parameters are resharded after the forward pass; for {duration(scale.scaled(exposed_us))} of each step "
            f"({percent(share)}) the GPU only communicates; kept for the backward pass, they take {data_size(kept)} "
            f"more, {data_size(known.peak + kept)} of {data_size(known.capacity)}."
        ),
        saving=scale.saving(0.0, exposed_us * _SPARED, "high: two instead of three equal messages per layer"),
        facts=_facts(known, record.world_size) | {"kept_bytes": kept, "exposed_us": exposed_us},
        fix=_KEPT,
    )


def _facts(known: Needs, many: int) -> dict[str, Any]:
    return {
        "devices": count(many),
        "parameter_bytes": known.parameters,
        "gradient_bytes": known.gradients,
        "optimizer_bytes": known.optimizer,
        "replicated_state_bytes": known.state,
        "sharded_state_bytes": known.state / many,
        "other_bytes": max(0.0, known.peak - known.state),
        "peak_bytes": known.peak,
        "capacity_bytes": known.capacity,
    }


_ZERO = Fix(
    "Shard the optimizer's state with `ZeroRedundancyOptimizer`",
    "exact",
    "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)",
    "from torch.distributed.optim import ZeroRedundancyOptimizer\n\n"
    "optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=lr)",
)
_FSDP = Fix(
    "Shard parameters, gradients and optimizer state with `fully_shard`",
    "numerics",
    "model = DistributedDataParallel(model)",
    "from torch.distributed.fsdp import fully_shard\n\n"
    "for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)",
)
_DDP = Fix(
    "Train on all devices with `torchrun --nproc-per-node DEVICES train.py`",
    "semantics",
    "model = Model().to(device)\nloader = DataLoader(dataset, batch_size=batch_size, shuffle=True)",
    'dist.init_process_group("nccl")\nmodel = DistributedDataParallel(Model().to(device))\n'
    "loader = DataLoader(dataset, batch_size=batch_size, sampler=DistributedSampler(dataset))",
)
_KEPT = Fix(
    "Set `reshard_after_forward=False` to keep parameters for the backward pass",
    "exact",
    "fully_shard(layer)",
    "fully_shard(layer, reshard_after_forward=False)",
)


def _drawn(world_size: int = 1) -> Drawing:
    return draw(
        """
        step   [1                             ][2                             ]
        cpu    [F ][B  ]                       [F ][B  ]
        gpu 7   [K                          ]   [K                          ]
        """,
        us=1000,
        world_size=world_size,
    )


def _talking() -> Drawing:
    return draw(
        """
        step   [1                             ][2                             ]
        cpu    [F ][B  ][A ]                   [F ][B  ][A ]
        gpu 7   [K    ][K    ]                  [K    ][K    ]
        gpu 20                [N        ]                     [N        ]
        """,
        us=1000,
        world_size=8,
        A=ALLREDUCE,
        N=NCCL,
    )


_GB = 10**9


def _known(peak_gb: int, parameters_gb: int, world_size: int = 1, devices: int = 1, **settings: Any) -> dict[str, Any]:
    return {
        "world_size": world_size,
        "settings": settings,
        "devices": [{"index": index, "memory_bytes": 80 * _GB} for index in range(devices)],
        "memory": {"peak_allocated_bytes": peak_gb * _GB},
        "model": {"parameters": parameters_gb * _GB // 4, "parameter_bytes": parameters_gb * _GB},
        "optimizers": [{"name": "AdamW"}],
    }


_RESHARDED = {"kind": "FSDP2", "units": 24, "reshard_after_forward": True}

EXAMPLES = [
    Example(
        "eight replicas at the limit of their memory; the optimizer's state is enough",
        _drawn(8),
        facts=_known(76, 10, 8, ddp={"kind": "DDP"}),
        saves_us="unknown",
        says=("76 GB of 80 GB", "AdamW's state 20 GB", "state sharded over 8 devices it would be 58.5 GB"),
    ),
    Example(
        "two replicas that need all of it sharded",
        _drawn(2),
        facts=_known(78, 12, 2, ddp={"kind": "DDP"}),
        saves_us="unknown",
        says=("all of it sharded over 2 devices it would be 54 GB",),
    ),
    Example(
        "one of four devices computes all the time",
        _drawn(),
        facts=_known(30, 4, devices=4),
        saves_us="unknown",
        says=("1 of 4 visible devices", "16 GB"),
    ),
    Example(
        "sharded again after the forward pass, though there is room",
        _talking(),
        facts=_known(30, 8, 8, fsdp=_RESHARDED),
        saves_us=(0, 4000),
        says=("7 GB more", "37 GB of 80 GB"),
    ),
    Example("the same without room", _talking(), facts=_known(62, 8, 8, fsdp=_RESHARDED), near_miss=True),
    Example(
        "memory full of activations: sharding frees little",
        _drawn(8),
        facts=_known(76, 2, 8, ddp={"kind": "DDP"}),
        near_miss=True,
    ),
    Example("a replica that fits", _drawn(8), facts=_known(40, 8, 8, ddp={"kind": "DDP"})),
    Example("one device alone", _drawn(), facts=_known(76, 10)),
]
