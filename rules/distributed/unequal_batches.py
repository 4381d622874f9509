"""Ranks get batches of unequal size.

## What it looks at
The arithmetic of each step on each rank, computed from the shapes of its matrix multiplications and convolutions, and
the time for which ranks wait for each other in collectives; of one or two steps only if the time before the backward
pass is longer on the same rank in the steps that were not profiled, too. Also the number of samples that each rank's
loader holds, where capture recorded it. Needs the traces of all ranks.

## Why it costs time
All ranks take as long as the one with the most work; the others waste the time in between. Loaders of unequal length
end an epoch on one rank while the others still wait for it, or hang.

## How to fix it
Samples of one size: give each rank the same number (`DistributedSampler`, `drop_last=True`). Samples of different
length: give all ranks batches of about the same length in the same step, by sorting the samples into batches by length
and distributing those, or by a fixed number of tokens per batch. A sampler that sorts and gives each rank one stretch
of the order deals alternately instead: `order[rank::world_size]`.

## When to leave it
Models that give ranks different parts by design: experts, whose exchanges are reported by the rule
uneven-exchanges, and stages of a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np

from advisor.api import (
    BACKWARD,
    GLOO,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Floats,
    Loader,
    Missing,
    Ranks,
    Source,
    draw,
    duration,
)

from ..shared._places import made_at
from ..shared._words import count, percent
from ._exchanges import uneven
from .waiting._unequal_work import LENGTHS

CONFIRMED = "measured pair on a CPU: two ranks with batches of unequal and of equal size"

# The rank with the most arithmetic is the one that the others wait for in this share of the steps.
_TELLS = 0.6
# Ranks that compute side by side on one host share its memory: even work takes each of them longer than alone.
_SIDE_BY_SIDE = 0.5
# Where at least half of the waiting is for the rank that got most from the others, it is not the loader that deals.
_BY_EXCHANGES = 0.5
_COMPUTING = ("compute", "forward", "backward")
# Batches of fewer profiled steps than these may differ by chance. Then the steps that were not profiled have to tell
# the same: what lies before the backward pass, and so before the waiting of DistributedDataParallel, takes longer on
# the rank with the larger batches than on another one, in this share of all pairs of their steps.
_FEW_STEPS = 3
_OFTEN = 0.8
_BEFORE_BACKWARD = "rest"
# Folders of packages, whose samplers are none of the script's.
_INSTALLED = ("site-packages", "dist-packages")


def check(
    ranks: Ranks,
    *,
    min_share: float = 0.05,  # ranks with equal work differ by up to 5 % of the step, from step to step
    min_host_share: float = 0.10,  # ranks that share a host's cores wait for each other anyway
    min_unequal: float = 0.10,  # batches that differ by less than a tenth matter less than other differences
) -> Iterator[Finding]:
    yield from _lengths(ranks)
    waiting = ranks.known_waiting()
    if ranks.flops is None:
        raise Missing("shapes were not recorded on all ranks, so batch sizes are unknown; capture with `advisor run`")
    work = ranks.flops
    most = work.max(axis=0)
    if not most.all():
        return
    exchanged = uneven(ranks, 1 + min_unequal)
    if exchanged and exchanged.waiting_us >= _BY_EXCHANGES * float(waiting.us.mean()):
        return
    unequal = 1 - work.mean(axis=0) / most
    alike = float((work.argmax(axis=0) == waiting.us.argmin(axis=0)).mean())
    if unequal.mean() < min_unequal or alike < _TELLS:
        return
    by_shape_us = float((unequal * _longest_us(ranks, work)).mean())
    by_waiting_us = float((waiting.us.mean(axis=0) - waiting.us.min(axis=0)).mean())
    low_us, high_us = sorted((by_shape_us, by_waiting_us))
    least = min_share if ranks.on_device else min_host_share
    if low_us < max(least * ranks.step_us, waiting.uncertain_us):
        return
    slowest, steady = _largest(ranks, work)
    if slowest is None:
        return
    who = f"rank {ranks.ranks[slowest]}" if steady else "a rank that varies from step to step"
    yield Finding(
        message=_message(ranks, who, float((most / work.mean(axis=0)).mean()), by_waiting_us),
        saving=ranks.scale.saving(
            low_us if ranks.on_device else low_us * _SIDE_BY_SIDE,
            high_us,
            "the same work distributed evenly: from the waiting in collectives, and from shapes and computing time",
        ),
        where=_dealt_at(ranks),
        facts={
            "unequal_share": float(unequal.mean()),
            "largest_is_last_share": alike,
            "flops_by_rank": {str(r): float(f) for r, f in zip(ranks.ranks, work.mean(axis=1), strict=True)},
            "waiting_us": by_waiting_us,
        },
        fix=_fix(ranks, steady),
    )


def _longest_us(ranks: Ranks, work: Floats) -> Floats:
    """What the rank with the largest batch computes in each step, µs."""
    computing = sum(us for part, us in ranks.parts_us.items() if part in _COMPUTING)
    longest: Floats = np.asarray(computing)[work.argmax(axis=0), np.arange(work.shape[1])]
    return longest


def _message(ranks: Ranks, who: str, times: float, waiting_us: float) -> str:
    """times: the largest batch over the mean;  waiting_us: what a rank waits in a step on average."""
    return (
        f"Ranks get unequal batches: the largest in a step, on {who}, has {count(times)} times the mean work, and "
        f"a rank waits {duration(ranks.scale.scaled(waiting_us))} of each step on average "
        f"({percent(min(waiting_us / ranks.step_us, 1.0))})."
    )


def _largest(ranks: Ranks, work: Floats) -> tuple[int | None, bool]:
    """The rank that most often has the largest batch, None where one step only is not typical, and whether always."""
    slowest = int(np.bincount(work.argmax(axis=0)).argmax())
    if work.shape[1] < _FEW_STEPS and (longer := _longer(ranks, slowest)) is not None and longer < _OFTEN:
        return (None if work.shape[1] == 1 else slowest), False
    return slowest, bool((work.argmax(axis=0) == slowest).all())


def _longer(ranks: Ranks, position: int) -> float | None:
    """In which share of pairs of un-profiled steps the forward pass of this rank takes longer than another's, the least
    of all others; None where their parts are not known."""
    steps = [one.record.steps if one.record else None for one in ranks.facts]
    times = [sorted(one.unprofiled_parts_us.get(_BEFORE_BACKWARD, [])) if one else [] for one in steps]
    if not all(times):
        return None
    others = [one for other, one in enumerate(times) if other != position]
    return min(float(np.searchsorted(one, times[position]).mean()) / len(one) for one in others)


def _dealt_at(ranks: Ranks) -> tuple[Source, ...]:
    """The script's sampler, which deals the samples, and where the loader was made."""
    loader = next((one for one in _loaders(ranks) if made_at(one)), None)
    if not _has_sampler(loader):
        return made_at(loader)
    sampler = (Source(loader.sampler_file, at[0], "__iter__", "function") for at in loader.sampler_lines[:1])
    return (*made_at(loader), *sampler)


def _has_sampler(loader: Loader | None) -> TypeGuard[Loader]:
    """Whether a loader draws samples by a class of the script's."""
    return (
        loader is not None and bool(loader.sampler_file) and not any(one in loader.sampler_file for one in _INSTALLED)
    )


def _fix(ranks: Ranks, steady: bool) -> Fix:
    if not steady:
        return LENGTHS
    return _IN_TURN if all(map(_has_sampler, _loaders(ranks))) else _SHARDS


def _lengths(ranks: Ranks) -> Iterator[Finding]:
    """Loaders that hold different numbers of samples."""
    loaders = _loaders(ranks)
    sizes = [loader.dataset_size if loader and not loader.iterable else None for loader in loaders]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or min(known) == max(known):
        return
    few, many = known.index(min(known)), known.index(max(known))
    yield Finding(
        message=(
            f"The loader of rank {ranks.ranks[few]} has {count(min(known))} samples, that of rank "
            f"{ranks.ranks[many]} {count(max(known))}: at the end of an epoch one waits for the other, or hangs."
        ),
        where=made_at(loaders[few]),
        facts={"samples_by_rank": {str(rank): size for rank, size in zip(ranks.ranks, known, strict=True)}},
        fix=_SHARDS,
        at_most="medium",
        ranks=(ranks.ranks[few], ranks.ranks[many]),
    )


def _loaders(ranks: Ranks) -> list[Loader | None]:
    """The loader of each rank, where capture saw one."""
    return [one.record.loaders[0] if one.record and one.record.loaders else None for one in ranks.facts]


_SHARDS = Fix(
    "Give each rank the same number of samples with `DistributedSampler`",
    "semantics",
    "loader = DataLoader(part_of_this_rank, batch_size=batch_size)",
    "sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)\n"
    "loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)",
)
_IN_TURN = Fix(
    "Deal samples that are sorted by length to the ranks alternately",
    "semantics",
    "share = len(ordered) // world_size\nindices = ordered[rank * share : (rank + 1) * share]",
    "indices = ordered[rank::world_size]",
)
_SHORT = """
    step   [1                             ][2                             ][3                             ]
    cpu    [F ][B  ]                       [F ][B  ]                       [F ][B  ]
    cpu 2  [A ]     [G                  ]  [A ]     [G                  ]  [A ]     [G                  ]
    """
_LONG = """
    step   [1                             ][2                             ][3                             ]
    cpu    [F      ][B           ]         [F      ][B           ]         [F      ][B           ]
    cpu 2  [A ]                   [G    ]  [A ]                   [G    ]  [A ]                   [G    ]
    """


def _drawn(text: str, rows: int, world_size: int = 2) -> Drawing:
    product = Ev("aten::mm", dims=[[rows, 256], [256, 256]])
    node = Ev(BACKWARD.name, dims=None)
    return draw(text, us=1000, world_size=world_size, F=product, B=node, G=GLOO, A=GLOO)


_EPOCH = {"world_size": 2, "steps": {"source": "loader", "count": 20}}


_ONE_SHORT = """
    step   [1                             ]
    cpu    [F ][B  ]
    cpu 2  [A ]     [G                  ]
    """
_ONE_LONG = """
    step   [1                             ]
    cpu    [F      ][B           ]
    cpu 2  [A ]                   [G    ]
    """


def _timed(forward_us: tuple[float, ...]) -> dict[str, Any]:
    """A sampler of the script's own; so long take un-profiled steps before the backward pass."""
    own = {"sampler": "ByLength", "sampler_file": "train.py", "sampler_lines": [[30, 41]]}
    made = {"batch_size": 32, "file": "train.py", "line": 60, "function": "main"}
    parts = {"fetch": [100.0] * 4, "backward": [9000.0] * 4, "optimizer": [100.0] * 4, "rest": [*forward_us]}
    steps = {"source": "loader", "count": 20, "unprofiled_us": [32_000.0] * 4, "unprofiled_parts_us": parts}
    return {"world_size": 2, "steps": steps, "loaders": [made | own]}


_QUICK, _SLOW, _MIXED = (
    (4000.0, 4500.0, 5000.0, 4200.0),
    (8000.0, 9000.0, 8500.0, 7900.0),
    (4100.0, 8000.0, 3900.0, 4400.0),
)


def _loader(samples: int) -> dict[str, Any]:
    return _EPOCH | {"loaders": [{"batch_size": 32, "dataset_size": samples, "iterable": False}]}


EXAMPLES = [
    Example(
        "rank 1 gets three times the tokens",
        _drawn(_SHORT, 1000),
        others=(_drawn(_LONG, 3000),),
        saves_us=(2500, 8000),
        says=("on rank 1", "1.5 times the mean work"),
    ),
    Example(
        "rank 1 is later with as many tokens: not for its data",
        _drawn(_SHORT, 1000),
        others=(_drawn(_LONG, 1000),),
        near_miss=True,
    ),
    Example(
        "three times the tokens on the rank that waits",
        _drawn(_SHORT, 3000),
        others=(_drawn(_LONG, 1000),),
        near_miss=True,
    ),
    Example(
        "one step in common, and the rank that waits has shorter forward passes all along",
        _drawn(_ONE_SHORT, 1000),
        facts=_timed(_QUICK),
        others=(_drawn(_ONE_LONG, 3000),),
        other_facts=(_timed(_SLOW),),
        saves_us=(2500, 12000),
        says=("on rank 1", "1.5 times the mean work"),
        fixes=("alternately",),
    ),
    Example(
        "one step in common, whose batches differ by chance",
        _drawn(_ONE_SHORT, 1000),
        facts=_timed(_QUICK),
        others=(_drawn(_ONE_LONG, 3000),),
        other_facts=(_timed(_MIXED),),
        near_miss=True,
    ),
    Example(
        "shards of different length",
        _drawn(_SHORT, 1000),
        facts=_loader(6400),
        others=(_drawn(_SHORT, 1000),),
        other_facts=(_loader(5800),),
        saves_us="unknown",
        says=("rank 1 has 5,800 samples",),
    ),
    Example(
        "even shards",
        _drawn(_SHORT, 1000),
        facts=_loader(6400),
        others=(_drawn(_SHORT, 1000),),
        other_facts=(_loader(6400),),
    ),
]
