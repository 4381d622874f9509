"""The finding about weights that each rank sends to all when it has updated its part of them.

Where each line is documented: torch.distributed.optim.ZeroRedundancyOptimizer (`parameters_as_bucket_view`: parameters
are views of one bucket for each rank, and broadcast by buckets; `overlap_with_ddp`: the step is overlapped with the
reductions of DistributedDataParallel, by a hook of torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook);
torch.distributed.fsdp.fully_shard.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from advisor.api import Callers, CallerTime, Finding, Fix, Lines, Price, RankRecord, Source, data_size, edits

from ...shared._places import made_at
from ...shared._words import count, each_step

_HOW = (
    "low: start-up time that one broadcast for each rank saves; high: none is sent, and each rank updates all weights, "
    "which takes as many times as long as there are ranks"
)
WHOLE = Fix(
    "Update all parameters on every rank, if the optimizer's whole state fits into memory",
    "exact",
    "optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=lr)",
    "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)\n"
    "# if it does not fit: ZeroRedundancyOptimizer(…, parameters_as_bucket_view=True), one broadcast for each rank;\n"
    "# overlap_with_ddp=True with a hook of ddp_zero_hook, beside the backward pass; or fully_shard, which needs none",
)


def finding(
    callers: Callers, price: Price, record: RankRecord | None, lines: Lines | None, min_share: float
) -> Finding | None:
    """What the device waits for, and what sends less; None where it hardly waits."""
    sent = callers.sent
    if sent is None or sent.exposed_us < min_share * price.ops.steps.step_us:
        return None
    ranks, update_us = _ranks(sent, price), price.spent_us(callers.update)
    by = f"`{callers.sent_by}`" if callers.sent_by else "An optimizer whose states are cut over ranks"
    amount = f" of {data_size(sent.bytes)}" if sent.bytes else ""
    return Finding(
        message=(
            f"{by} updates a part of the weights on each rank, and broadcasts them to all behind each update: "
            f"{count(sent.calls)} broadcasts a step{amount}. For {each_step(price, sent.exposed_us)} the GPU only "
            "communicates for it."
        ),
        saving=price.saving(
            [edits.scale(sent.rows, 1 - _spared(sent, callers, price, ranks))],
            [edits.remove(sent.ops), *([edits.scale(callers.update, ranks)] if ranks > 1 else [])],
            ("exposed_communication",),
            _HOW,
            model_us=(0.0, sent.exposed_us - max(ranks - 1, 0) * update_us),
            bound_us=sent.exposed_us,
        ),
        where=(*sharded_at(record), *_asked_at(sent, lines)),
        facts={
            "exposed_us": sent.exposed_us,
            "collectives": sent.calls,
            "bytes": sent.bytes,
            "optimizer": callers.sent_by,
            "update_us": update_us,
        },
        fix=WHOLE,
        claims=("exposed_communication",),
    )


def _ranks(sent: CallerTime, price: Price) -> int:
    """How many ranks a broadcast joins; 0 where none says."""
    table, known = price.ops.events.collective_table, price.ops.events.collective[sent.rows]
    return max((table[at].group_size for at in np.unique(known[known >= 0]).tolist()), default=0)


def _spared(sent: CallerTime, callers: Callers, price: Price, ranks: int) -> float:
    """Share of the broadcasts' time that it takes to begin more of them than there are ranks."""
    took_us = price.ops.events.dur_ns[sent.rows] / 1e3
    fewer = max(len(sent.rows) - max(ranks, 1) * price.ops.steps.count, 0)
    begin_us = min(float(np.quantile(took_us, 0.1)), callers.rate.latency_us[0] if callers.rate else 0.0)
    return fewer * begin_us / float(took_us.sum()) if took_us.any() else 0.0


def sharded_at(record: RankRecord | None) -> tuple[Source, ...]:
    """Where the sharded optimizer was made: of two at one line, it made the other."""
    known = record.optimizers if record else []
    return next((made_at(one) for one in known if "Redundancy" in one.name), made_at(known[0]) if known else ())


def _asked_at(sent: CallerTime, lines: Lines | None) -> tuple[Source, ...]:
    """The line of the script that asks for most of them."""
    known = Counter(found for op in sent.ops.tolist() if lines and (found := lines.where_op(op)) is not None)
    return tuple(line for line, _ in known.most_common(1))
