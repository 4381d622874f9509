"""Some collectives take far longer than others of the same kind and size.

## What it looks at
The time in which a collective transfers data, from when its last rank has joined until it ends, for collectives of the
same kind, process group and size. Time in which ranks wait for each other is excluded, so a late rank does not count
as a slow collective. Needs the traces of all ranks.

## Why it costs time
All ranks wait in a collective until its slowest link has transferred its part: a busy network, a link that fell back to
a lower rate, copies that use the same path.

## How to fix it
Check whether the slow ones occur at the same point of the step: then something else uses the links there, such as
checkpoints, the loader or copies to the host. If they occur at random, check the network counters, and other jobs on
the same switches.

## When to leave it
The first collectives of a group, which set up its channels, and collectives that overlap with computation, which cost
nothing. Ranks without a device that all run on one machine are not judged: memory is their link, and a collective that
takes long there is a thread that waits for a core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.api import (
    ALLREDUCE,
    GLOO,
    NCCL,
    Drawing,
    Ev,
    Example,
    Finding,
    Floats,
    Ints,
    Meetings,
    Ranks,
    draw,
    duration,
)

from ..shared._words import count, percent

# With fewer of a kind nobody knows what is usual.
_FEWEST = 6
# One of this many may be slow: where more are, the slow ones are what is usual.
_FEW = 1 / 3


def check(
    ranks: Ranks,
    *,
    min_times: float = 3.0,  # three times the median: lower ratios are within the spread of a shared network
    min_share: float = 0.03,  # of the step, beyond the usual time; less is within the spread of the steps
    min_host_share: float = 0.15,  # on a host, a thread that waits for a core looks like a slow network
) -> Iterator[Finding]:
    if not ranks.on_device and _on_one_host(ranks):
        return
    worst = max(_slow(ranks, min_times), key=lambda one: one.extra_us, default=None)
    if worst is None or worst.extra_us < (min_share if ranks.on_device else min_host_share) * ranks.step_us:
        return
    extra_us, scale = worst.extra_us, ranks.scale
    yield Finding(
        message=(
            f"{worst.slow} of {worst.of} collectives ({worst.kind}) of one size take up to {count(round(worst.times))} "
            f"times as long as usual with no rank late: {duration(scale.scaled(extra_us))} of each step on average "
            f"({percent(extra_us / ranks.step_us)})."
        ),
        saving=scale.saving(0.0, extra_us, "high: all of this kind as fast as usual; low: the network is shared"),
        facts={
            "slow_collectives": worst.slow,
            "collectives": worst.of,
            "times_as_long": worst.times,
            "extra_us": extra_us,
            "kind": worst.kind,
        },
        recoverable=False,
        at_most="medium",
    )


class _Slow(Struct, frozen=True):
    """Collectives of one kind and size of which a few are slow.

    extra_us  what these take beyond the usual, per step;  times: how many times as long as usual the slowest sends
    """

    extra_us: float
    slow: int
    of: int
    times: float
    kind: str


def _slow(ranks: Ranks, min_times: float) -> Iterator[_Slow]:
    """Those of every kind and size."""
    waiting = ranks.known_waiting()
    for meeting, late in zip(ranks.meetings, waiting.late_us, strict=True):
        sent = _sent_us(meeting, late)
        for (kind, _), rows in _alike(meeting).items():
            if kind == "broadcast":  # its sender may have left before the last rank came
                continue
            usual = float(np.median(sent[rows]))
            slow = rows[sent[rows] > max(min_times * usual, usual + 2 * waiting.uncertain_us)]
            if len(rows) >= _FEWEST and 0 < len(slow) <= _FEW * len(rows):
                extra_us = float((sent[slow] - usual).sum()) / len(ranks.steps)
                yield _Slow(extra_us, len(slow), len(rows), float(sent[slow].max()) / max(usual, 1e-3), kind)


def _on_one_host(ranks: Ranks) -> bool:
    """Whether all ranks are processes of one machine, as far as is known: memory is their only link."""
    record = ranks.facts[ranks.reference].record
    return record is not None and record.local_world_size == ranks.world_size


def _alike(meeting: Meetings) -> dict[tuple[str, int], Ints]:
    """Collectives of one kind and size: (kind, elements) -> rows."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, kind in enumerate(meeting.kind):
        found[kind, int(meeting.sent[row].max())].append(row)
    return {key: np.array(rows, np.int64) for key, rows in found.items()}


def _sent_us(meeting: Meetings, late: Floats) -> Floats:
    """µs of each collective that no rank spends alone: from the last rank's coming until the first has left."""
    spent = (meeting.end_ns - meeting.start_ns) / 1e3
    waited = late.max(axis=1, keepdims=True) - late
    sent: Floats = np.maximum(spent - waited, 0.0).min(axis=1)
    return sent


def _drawn(lasts: Sequence[int], comes: Sequence[int] = ()) -> Drawing:
    """A rank whose all-reduces last so many columns; in step k its collective begins comes[k] columns later."""
    lanes = {"step  ": "", "cpu   ": "", "gpu 7 ": "", "gpu 20": ""}
    for number, last in enumerate(lasts):
        late = comes[number] if comes else 0
        length = 16 + late + last
        lanes["step  "] += f"[{number:<{length - 2}}]"
        lanes["cpu   "] += f"[F ][B  ]{' ' * late}[A]".ljust(length)
        lanes["gpu 7 "] += " [K     ]".ljust(length)
        lanes["gpu 20"] += (" " * (10 + late) + f"[{'N':<{last - 2}}]").ljust(length)
    text = "\n".join(f"{lane} {boxes}" for lane, boxes in lanes.items())
    return draw(text, us=1000, world_size=2, A=ALLREDUCE, N=NCCL)


def _on_the_host(lasts: Sequence[int]) -> Drawing:
    """The same of ranks without a device."""
    lanes = {"step ": "", "cpu  ": "", "cpu 2": ""}
    for last in lasts:
        length = 16 + last
        lanes["step "] += f"[{'1':<{length - 2}}]"
        lanes["cpu  "] += "[F ][B  ]".ljust(length)
        lanes["cpu 2"] += (" " * 10 + f"[{'G':<{last - 2}}]").ljust(length)
    text = "\n".join(f"{lane} {boxes}" for lane, boxes in lanes.items())
    return draw(text, us=1000, world_size=2, G=Ev(GLOO.name, GLOO.cat, dims=[[2048]]))


_UNEVEN = [3, 3, 30, 3, 3, 3]

EXAMPLES = [
    Example(
        "one of six on two machines without a device",
        _on_the_host(_UNEVEN),
        others=(_on_the_host(_UNEVEN),),
        facts={"local_world_size": 1},
        saves_us=(0, 6000),
        says=("1 of 6 collectives",),
    ),
    Example(
        "the same where both ranks are processes of one machine",
        _on_the_host(_UNEVEN),
        others=(_on_the_host(_UNEVEN),),
        facts={"local_world_size": 2},
        near_miss=True,
    ),
    Example(
        "one of six all-reduces takes four times as long",
        _drawn([3, 3, 12, 3, 3, 3]),
        others=(_drawn([3, 3, 12, 3, 3, 3]),),
        saves_us=(0, 1600),
        says=("1 of 6 collectives (all_reduce)", "4 times"),
    ),
    Example(
        "a rank is late to one of them",
        _drawn([3, 3, 12, 3, 3, 3]),
        others=(_drawn([3, 3, 3, 3, 3, 3], comes=[0, 0, 9, 0, 0, 0]),),
        near_miss=True,
    ),
    Example(
        "every other one is four times as long: that is usual here",
        _drawn([3, 12, 3, 12, 3, 12]),
        others=(_drawn([3, 12, 3, 12, 3, 12]),),
        near_miss=True,
    ),
    Example("all alike", _drawn([3] * 6), others=(_drawn([3] * 6),)),
]
