"""The finding about statistics that `nn.SyncBatchNorm` exchanges, a small collective for each layer and pass."""

from __future__ import annotations

import numpy as np

from advisor.api import GEMM, Drawing, Ev, Example, Finding, Fix, KindOfTalk, Price, data_size, draw, edits

from ..shared._words import count, each_step

_HOW = (
    "low: each exchange takes as long as the fastest 10 % of its size, with no rank late; high: all of the waiting and "
    "of the host's launches, if ranks do not wait for each other in the next collective instead"
)
# What a layer runs with the statistics of all ranks; one of a single rank has none of it.
_MERGES = "aten::batch_norm_gather_stats_with_counts"


def finding(kind: KindOfTalk, price: Price) -> Finding:
    """What the exchanges cost, and what needs none of them."""
    on_device = price.on_device
    sent = min(kind.least_us / kind.us, 1.0) if kind.us else 0.0
    ends_us = (sent * kind.exposed_us, kind.exposed_us)
    saving = price.scale.saving(*ends_us, _HOW)
    if on_device:
        events = price.ops.events
        asked = np.concatenate(
            [kind.ops[kind.ops >= 0], np.flatnonzero(events.exactly(_MERGES) & price.ops.links.inside)]
        )
        bound_us = kind.exposed_us + price.ops.us(asked)
        gone = [edits.remove(kind.rows), edits.remove(asked)]
        saving = price.saving(
            [edits.scale(kind.rows, 1 - sent)], gone, (), _HOW, model_us=(ends_us[0], bound_us), bound_us=bound_us
        )
    amount = f", {data_size(kind.bytes / kind.calls)} each" if kind.bytes is not None and kind.calls else ""
    many = "1 collective" if kind.calls == 1 else f"{count(kind.calls)} collectives"
    who = "the GPU only communicates" if on_device else "the training loop only communicates"
    return Finding(
        message=(
            "The layers of `nn.SyncBatchNorm` exchange their statistics between all ranks, one after another: "
            f"{many} a step{amount}, in which {who}: {each_step(price, kind.exposed_us)}."
        ),
        saving=saving,
        facts={
            "parallelism": kind.kind,
            "exposed_us": kind.exposed_us,
            "communication_us": kind.us,
            "collectives": kind.calls,
            "bytes": kind.bytes,
        },
        fix=_PLAIN,
        at_most="medium",
        claims=("exposed_communication" if on_device else "communication",),
    )


_PLAIN = Fix(
    "Keep `nn.BatchNorm2d` if each rank's batch is large enough for its statistics, else use `nn.GroupNorm`",
    "semantics",
    "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)",
    "# each rank normalizes with the statistics of its own batch",
)

# A layer's own statistics (S), their exchange (A), and what needs those of all ranks (E); then its backward pass.
_LAYER = """
    step   [1                             ][2                             ]
    cpu    [F][S][A][E]      [B ][R]        [F][S][A][E]      [B ][R]
    gpu 7   [K][L]        [M        ]       [K][L]        [M        ]
    gpu 20          [N   ]                          [N   ]
    """


def _layer(statistics: str) -> Drawing:
    """A rank of eight; `statistics` is the op before the exchange."""
    about = {"Collective name": "_allgather_base", "dtype": "Float", "In msg nelems": 257, "Group size": 8}
    return draw(
        _LAYER,
        us=1000,
        world_size=8,
        device="A100",
        S=Ev(statistics),
        A=Ev("c10d::_allgather_base_", launches="collective"),
        E=Ev("aten::batch_norm_gather_stats_with_counts"),
        R=Ev("aten::add"),
        L=Ev("batch_norm_collect_statistics_kernel", "kernel"),
        M=GEMM,
        N=Ev("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", args=about),
    )


NORMS = [
    Example(
        "layers exchange the statistics of their batches",
        _layer("aten::batch_norm_stats"),
        saves_us=(0, 8500),
        says=("`nn.SyncBatchNorm`", "1 collective a step"),
        fixes=("nn.GroupNorm",),
    ),
    Example("a gather that no layer's statistics precede", _layer("aten::mean"), saves_us=(0, 6500), says=("For ",)),
]
