"""Pipeline stages are idle while others compute.

## What it looks at
Ranks that pass activations and gradients to each other (sends and receives), and how long each of them computes:
stages of unequal work, and the start and end of each step, when not all stages have work yet. Each send
is matched with its receive, so that waiting for a stage is distinguished from the time to send. If process groups name
the stages, the ranks of several pipelines (data or tensor parallel) count together; otherwise each rank is a stage, if
most of what it communicates is sends and receives. Needs the traces of all ranks.

## Why it costs time
The slowest stage determines the speed of all. And with p stages and m micro-batches per step the pipeline fills and
drains for p - 1 of its m + p - 1 time slots.

## How to fix it
Unequal stages: move layers from the slowest to the fastest; the last stage has the loss, the first the embedding. Few
micro-batches: use more of them, at least four times as many as stages; or a schedule that interleaves (several stages
on each rank) or fills the gaps (`ScheduleInterleaved1F1B`, `ScheduleZBVZeroBubble`).

## When to leave it
Micro-batches that are small already: their kernels no longer fill the device, and more of them take longer in total.
Stages on a host with fewer cores than stages are not judged: what one waits for is the core that another computes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import GLOO, Drawing, Ev, Example, Finding, Fix, Missing, Passes, Ranks, Saving, draw, duration

from ..shared._words import count, percent

_PASSED_ON = ("send", "recv", "send_recv")
# Passing on is what most communication of a stage is; other ways to split a model send to single ranks now and then.
_MOSTLY = 0.5
_COMPUTING = ("compute", "forward", "backward")
# Ranks of a stage that a message lists.
_LISTED = 6


class _Pipeline(Struct, frozen=True):
    """Stages, micro-batches of a step, and the mean step: profiled µs.

    stage_of: the stage of each rank;  work_us: what each stage computes, the median of its ranks
    """

    stage_of: tuple[int, ...]
    micro: int
    work_us: tuple[float, ...]
    step_us: float

    @property
    def stages(self) -> int:
        return len(self.work_us)

    @property
    def slowest(self) -> int:
        return int(np.argmax(self.work_us))

    @property
    def mean_us(self) -> float:
        return float(np.mean(self.work_us))

    @property
    def turns(self) -> float:
        """How many times its computing a stage needs from the first micro-batch to the last of the others."""
        return (self.micro + self.stages - 1) / self.micro

    def of_slowest(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The ranks of the slowest stage."""
        return tuple(n for n, stage in zip(numbers, self.stage_of, strict=True) if stage == self.slowest)


def check(
    ranks: Ranks,
    *,
    min_share: float = 0.05,  # repartitioning a model is work that less than 5 % of the step does not justify
    min_unequal: float = 1.15,  # layers are indivisible: stages that differ by less cannot be split more evenly
) -> Iterator[Finding]:
    pipeline = _pipeline(ranks)
    if pipeline is None:
        return
    if not ranks.whole:
        raise Missing("traces of some pipeline stages are missing; pass the traces of all ranks")
    if _share_cores(ranks):
        raise Missing("the stages share cores, so one waits for the core of another; give each rank a core of its own")
    unequal = pipeline.work_us[pipeline.slowest] / pipeline.mean_us
    # Where sends were matched with receives, they say whether anybody waits for the stage that computes longest.
    waited_us = _waited_us(ranks, pipeline)
    if unequal >= min_unequal and waited_us is not None and waited_us < min_share * ranks.step_us:
        return
    found = _unequal(ranks, pipeline, waited_us) if unequal >= min_unequal else _bubble(ranks, pipeline)
    if found.saving and found.saving.high_us >= min_share * ranks.scale.step_us:
        yield found


def _pipeline(ranks: Ranks) -> _Pipeline | None:
    """The pipeline that the ranks form, or the equal ones; None where they form none."""
    stage_of = _stages(ranks)
    if len(set(stage_of)) < 2:
        return None
    # Experts' exchanges are kernels of the same name as sends, which say what they are where a row says anything.
    named = any("send" in one.talks.kind for one in ranks.facts)
    kinds = ("send",) if named else ("send", "send_recv")
    sends = [sum(kind in kinds for kind in one.talks.kind) / max(len(one.labels), 1) for one in ranks.facts]
    computing = np.sum([us for part, us in ranks.parts_us.items() if part in _COMPUTING], axis=0).mean(axis=1)
    # The last stage sends nothing but gradients back and the first nothing but activations: one for each micro-batch.
    micro = round(min(sends))
    if micro < 1 or not computing.min() > 0:
        return None
    members = [np.flatnonzero(np.array(stage_of) == stage) for stage in range(max(stage_of) + 1)]
    if not all(map(len, members)):
        return None
    work_us = tuple(float(np.median(computing[mine])) for mine in members)
    return _Pipeline(stage_of, micro, work_us, ranks.step_us)


def _stages(ranks: Ranks) -> tuple[int, ...]:
    """The stage of each rank: as process groups say, or each rank is one, if passing on is most of what they do."""
    if not ranks.steps:
        return ()
    places = [[place.index for place in one.mesh if place.kind == "stages"] for one in ranks.facts]
    if all(places):
        return tuple(indices[0] for indices in places)
    for one in ranks.facts:
        kinds = one.talks.kind
        if not kinds or sum(kind in _PASSED_ON for kind in kinds) < _MOSTLY * len(kinds):
            return ()
    return tuple(range(len(ranks.facts)))


def _share_cores(ranks: Ranks) -> bool:
    """Whether a host has more of these stages than cores, as capture recorded it."""
    records = [one.record for one in ranks.facts if one.record and one.record.settings.cores is not None]
    return not ranks.on_device and any(
        (one.settings.cores or 0) < min(one.local_world_size or 1, len(ranks.ranks)) for one in records
    )


def _waited_us(ranks: Ranks, pipeline: _Pipeline) -> float | None:
    """What the rank that waits longest for the slowest stage does nothing else, profiled µs per step.

    None where sends and receives could not be matched.
    """
    mine = [one.waited_us for one in ranks.passes if pipeline.stage_of[one.source] == pipeline.slowest]
    return max(mine) if mine and not ranks.unpassed else None


def _unequal(ranks: Ranks, pipeline: _Pipeline, waited_us: float | None) -> Finding:
    most_us, mean_us = pipeline.work_us[pipeline.slowest], pipeline.mean_us
    numbers = pipeline.of_slowest(ranks.ranks)
    of = f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {_named(numbers)}"
    return Finding(
        message=(
            f"The stage of {of} computes for {duration(ranks.scale.scaled(most_us))} of each step, "
            f"{count(most_us / mean_us)} times the mean of the {pipeline.stages} stages, and the others wait for it"
            + (f", {duration(ranks.scale.scaled(waited_us))} for the data it sends." if waited_us else ".")
        ),
        saving=_saving(
            ranks,
            most_us - mean_us,
            (most_us - mean_us) * pipeline.turns,
            "stages of the mean length; high: from the first micro-batch to the last",
        ),
        facts=_facts(ranks, pipeline),
        fix=_EVEN,
        ranks=numbers,
    )


def _bubble(ranks: Ranks, pipeline: _Pipeline) -> Finding:
    """The time in which the pipeline fills and drains."""
    idle = (pipeline.stages - 1) / (pipeline.micro + pipeline.stages - 1)
    half_us = pipeline.mean_us * (pipeline.stages - 1) / pipeline.micro / 2
    return Finding(
        message=(
            f"{pipeline.stages} stages process {pipeline.micro} micro-batches a step: the pipeline fills and drains "
            f"for {percent(idle)} of its time slots, with {2 * pipeline.micro} micro-batches for "
            f"{percent((pipeline.stages - 1) / (2 * pipeline.micro + pipeline.stages - 1))}."
        ),
        saving=_saving(ranks, 0.0, half_us, "high: twice the micro-batches, as fast for each sample as now"),
        facts=_facts(ranks, pipeline) | {"bubble_share": idle},
        fix=Fix(
            "Split the batch into twice as many micro-batches",
            "numerics",
            f"schedule = Schedule1F1B(stage, n_microbatches={pipeline.micro}, loss_fn=loss_fn)",
            f"schedule = Schedule1F1B(stage, n_microbatches={2 * pipeline.micro}, loss_fn=loss_fn)",
        ),
    )


def _named(numbers: Sequence[int]) -> str:
    """Ranks in words: a few of them, or the first and last of many."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    some = ", ".join(map(str, numbers[:_LISTED]))
    return some if len(numbers) <= _LISTED else f"{some}, …"


def _saving(ranks: Ranks, low_us: float, high_us: float, how: str) -> Saving:
    return ranks.scale.saving(low_us, high_us, how)


def _facts(ranks: Ranks, pipeline: _Pipeline) -> dict[str, Any]:
    return {
        "stages": pipeline.stages,
        "micro_batches": pipeline.micro,
        "computing_us_by_stage": {str(stage): us for stage, us in enumerate(pipeline.work_us)},
        "waiting_us_by_pair": {_pair(ranks, one): one.waited_us for one in ranks.passes},
        "travelling_us_by_pair": {_pair(ranks, one): one.travels_us for one in ranks.passes},
    }


def _pair(ranks: Ranks, one: Passes) -> str:
    return f"{ranks.ranks[one.target]} for {ranks.ranks[one.source]}"


_EVEN = Fix(
    "Move layers from the slowest stage to the others",
    "exact",
    "stage = PipelineStage(layers[:2] if rank == 0 else layers[2:], rank, world_size, device)",
    "half = len(layers) // 2\n"
    "stage = PipelineStage(layers[:half] if rank == 0 else layers[half:], rank, world_size, device)",
)

_FIRST = """
    step   [1                                     ][2                                     ]
    cpu    [F ][F ]                [B  ][B  ]       [F ][F ]                [B  ][B  ]
    cpu 2  [r]  [s]    [s]                          [r]  [s]    [s]
    """
_LAST = """
    step   [1                                     ][2                                     ]
    cpu         [F ]    [F ][B  ][B  ]                   [F ]    [F ][B  ][B  ]
    cpu 2  [r  ]                 [s]  [s]           [r  ]                 [s]  [s]
    """
_LONG = """
    step   [1                                     ][2                                     ]
    cpu         [F       ][F    ][B     ][B     ]        [F       ][F    ][B     ][B     ]
    cpu 2  [r  ]                         [s]  [s]   [r  ]                         [s]  [s]
    """
_MANY = """
    step   [1                                     ][2                                     ]
    cpu    [F ][F ]                [B  ][B  ]       [F ][F ]                [B  ][B  ]
    cpu 2  [s                        ][r ]          [s                        ][r ]
    """
_REDUCED = """
    step   [1                                     ][2                                     ]
    cpu    [F ][F ]                [B  ][B  ]       [F ][F ]                [B  ][B  ]
    cpu 2  [a]  [a]    [s]                          [a]  [a]    [s]
    """


_SEND, _RECV = Ev("gloo:send", "user_annotation"), Ev("gloo:recv", "user_annotation")


def _drawn(text: str, many: int = 1) -> Drawing:
    sends = Ev(_SEND.name, _SEND.cat, times=many)
    return draw(text, us=1000, world_size=2, s=sends, r=_RECV)


def _reducing(sends: Ev) -> Drawing:
    return draw(_REDUCED, us=1000, world_size=2, a=GLOO, s=sends)


EXAMPLES = [
    Example(
        "two micro-batches for two stages",
        _drawn(_FIRST),
        others=(_drawn(_LAST),),
        saves_us=(0, 6000),
        says=("2 stages process 2 micro-batches", "33 % of its time slots", "4 micro-batches for 20 %"),
    ),
    Example(
        "the second stage has twice the work",
        _drawn(_FIRST),
        others=(_drawn(_LONG),),
        saves_us=(5000, 14000),
        says=("The stage of rank 1",),
    ),
    Example("forty micro-batches for two stages", _drawn(_MANY, 40), others=(_drawn(_MANY, 40),), near_miss=True),
    Example("ranks that reduce, and send now and then", _reducing(_SEND), others=(_reducing(_SEND),), near_miss=True),
    Example("ranks that only reduce", _reducing(GLOO), others=(_reducing(GLOO),)),
]
