"""All-to-all exchanges have parts of unequal size.

## What it looks at
Exchanges in which each rank sends a part to every other (all-to-all), as experts and sharded embedding tables need
them: how many numbers each rank sends and receives, whether the rank with the most joins them last, and how long the
others wait for it. Needs the traces of all ranks, with the sizes that NCCL's kernels record.

## Why it costs time
An exchange takes as long as its largest part. What follows, the expert's layers or the lookups, takes longest on the
rank that received most, and all others wait for it in the exchange back.

## How to fix it
Experts: a load-balancing loss for the router, a capacity limit for the tokens of an expert, or experts that are placed
on ranks by how often they are chosen. Tables: distribute them by the number of lookups, or split the largest by rows
or columns.

## When to leave it
Inference with experts whose routing is unbalanced: only their placement can be changed there. The first steps of
a training, before the router has learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from advisor.api import GEMM, Drawing, Ev, Example, Finding, Fix, Ranks, draw

from ..shared._words import count, each_step, plural
from ._exchanges import uneven

_TALKING = ("exposed_communication", "communication")


def check(
    ranks: Ranks,
    *,
    min_times: float = 1.3,  # parts differ by less from batch to batch with a router that is in balance
    min_share: float = 0.05,  # balancing changes the model: less than 5 % of the step is not worth another loss
    min_host_share: float = 0.10,  # ranks that share a host's cores wait for each other anyway
) -> Iterator[Finding]:
    found = uneven(ranks, min_times)
    if found is None:
        return
    talking_us = sum(float(us.mean()) for part, us in ranks.parts_us.items() if part in _TALKING)
    lost_us = min(found.us, talking_us)
    if lost_us < (min_share if ranks.on_device else min_host_share) * ranks.step_us:
        return
    who = f"on rank {ranks.ranks[found.most]}" if found.steady else f"most often on rank {ranks.ranks[found.most]}"
    yield Finding(
        message=(
            f"In {count(found.exchanges)} of {plural(found.of, 'exchange')} a step parts are uneven: the largest, "
            f"{who}, has {count(found.times)} times the mean, and on average a rank waits for it "
            f"{each_step(ranks, lost_us)}."
        ),
        saving=ranks.scale.saving(
            0.0, lost_us, "high: all parts of one size; low: nothing, if balancing would harm the model"
        ),
        facts={
            "uneven_exchanges": found.exchanges,
            "exchanges": found.of,
            "largest_over_mean": found.times,
            "sending_us": found.sending_us,
            "waiting_us": found.waiting_us,
        },
        fix=_BALANCE,
        at_most="medium",
    )


_BALANCE = Fix(
    "Add a load-balancing loss for the router",
    "semantics",
    "loss = task_loss",
    "chosen = torch.nn.functional.one_hot(expert_index, experts).float().mean(0)\n"
    "loss = task_loss + 0.01 * experts * (chosen * router_probabilities.mean(0)).sum()",
)


def _drawn(parts: Sequence[int], works: Sequence[int], longest: int) -> Drawing:
    """A rank that gets parts[k] numbers in step k and computes on them for works[k] columns; the longest of a job."""
    lanes = {"step  ": "", "cpu   ": "", "gpu 7 ": "", "gpu 20": ""}
    boxes: dict[str, Any] = {"K": GEMM, "E": Ev("aten::mm")}
    for number, (part, work) in enumerate(zip(parts, works, strict=True)):
        length = longest + 14
        there, back = "ABCD"[number], "STUV"[number]
        lanes["step  "] += f"[{number:<{length - 2}}]"
        lanes["cpu   "] += "[E][E]".ljust(length)
        lanes["gpu 7 "] += f" [K][{'K':<{work}}]".ljust(length).replace("][", "]    [", 1)[:length]
        exchange = f"     [{there}]" + " " * (work + 2) + f"[{back:<{longest - work + 1}}]"
        lanes["gpu 20"] += exchange.ljust(length)
        boxes[there], boxes[back] = _exchange(1000, part), _exchange(part, 1000)
    text = "\n".join(f"{lane} {row}" for lane, row in lanes.items())
    return draw(text, us=1000, world_size=2, **boxes)


def _exchange(sent: int, received: int) -> Ev:
    return Ev(
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "kernel",
        args={
            "Collective name": "all_to_allv",
            "dtype": "Float",
            "In msg nelems": sent,
            "Out msg nelems": received,
            "Group size": 2,
        },
    )


EXAMPLES = [
    Example(
        "rank 1 gets three times the tokens and computes three times as long",
        _drawn([500] * 4, [4] * 4, 12),
        others=(_drawn([1500] * 4, [12] * 4, 12),),
        saves_us=(0, 6500),
        says=("on rank 1", "2 of 2 exchanges", "1.5 times the mean"),
    ),
    Example(
        "as many tokens on both; rank 1 is late for another reason",
        _drawn([1000] * 4, [4] * 4, 12),
        others=(_drawn([1000] * 4, [12] * 4, 12),),
        near_miss=True,
    ),
    Example(
        "the rank with the most tokens is the one that waits",
        _drawn([1500] * 4, [4] * 4, 40),
        others=(_drawn([500] * 4, [40] * 4, 40),),
        near_miss=True,
    ),
    Example("tokens dealt out evenly", _drawn([1000] * 4, [8] * 4, 8), others=(_drawn([1000] * 4, [8] * 4, 8),)),
]
