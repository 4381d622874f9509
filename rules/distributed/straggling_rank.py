"""One rank is slower than the others, which wait for it.

## What it looks at
Every collective that all ranks join, matched over their traces with the ranks' clocks aligned: which rank joins last,
and how long the others wait before. A rank that is last in nearly all steps is named, with what it does
more of than the others: input, Python, computation, garbage collection. Needs the traces of all ranks.

## Why it costs time
A collective ends when the last rank has joined. In each step all ranks take as long as the slowest, and the waiting of
the others looks like slow communication.

## How to fix it
Move what only the slow rank does off it: logging, checkpoints; check for a slower disk. If the same work takes longer
there, look for other processes on its cores, or a device that is hot or shared. Unequal batches are reported by the
rule unequal-batches.

## When to leave it
Jobs whose ranks have different tasks by design, such as stages of a pipeline or a rank that also evaluates. Ranks on
the cores of a host that other processes use, too: equal work that takes one of them longer is not reported there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    BACKWARD,
    FORWARD,
    GLOO,
    NEXT,
    Drawing,
    Example,
    Finding,
    Floats,
    Ints,
    Ranks,
    Saving,
    Waiting,
    constant,
    draw,
    duration,
)

from ..shared._side_effect_factors import SIDE_EFFECTS
from ..shared._words import percent
from ._stragglers import Cause, cause_of, fix_of, plain_us

CONFIRMED = "real trace: DLRM on eight V100s, where one rank comes last to five of eight collectives"

# With fewer steps the collectives themselves are counted: five chances, and the same rank last in three.
_FEW_STEPS, _FEWEST_MEETINGS, _OFTEN = 3, 5, 0.6

# Share of the time without a core from which on a rank is slow for want of one.
_CONTENDED = constant("share.contended").value


class _Late(Struct, frozen=True):
    """The late rank: its position, in what share of steps (or collectives: `few` steps) it is last, the others' time.

    waited_us  what the rank that waits least of the others waits more than it, per step
    excess_us  the same, from the breakdowns alone
    """

    position: int
    share: float
    often: str
    waited_us: float
    excess_us: float
    few: bool


def check(
    ranks: Ranks,
    *,
    min_share: float = 0.05,  # ranks with equal work differ by up to 5 % of the step, from step to step
    min_host_share: float = 0.15,  # ranks that share a host's cores wait for each other for 10 % without a cause
    min_steps: float = 0.8,  # last in four of five steps: one that is late by chance changes from step to step
) -> Iterator[Finding]:
    waiting = ranks.known_waiting()
    late = _late(ranks, waiting)
    least = min_share if ranks.on_device else min_host_share
    if late is None or late.share < (_OFTEN if late.few else min_steps):
        return
    uncertain_us = waiting.uncertain_us
    sure_us, most_us = sorted((late.waited_us, late.excess_us))
    if sure_us < least * ranks.step_us or sure_us < 2 * uncertain_us:
        return
    cause = cause_of(ranks, late.position)
    # Larger batches are what unequal-batches looks at. And equal work that takes a rank longer on the cores of a host
    # says that others use its core just now, not what is wrong with the training.
    if cause.id == "data" or (not ranks.on_device and cause.computing > _CONTENDED):
        return
    number = ranks.ranks[late.position]
    waits_us = plain_us(ranks, sure_us, cause.python_us)
    yield Finding(
        message=(
            f"Rank {number} is last {late.often}, and each other rank waits for it, at least {duration(waits_us)} of "
            f"each step ({percent(_share(ranks, waits_us))}): {cause.said}."
        ),
        saving=_saving(ranks, cause, 0.0 if late.few else sure_us - uncertain_us, most_us),
        where=cause.where,
        facts=_facts(ranks, waiting, late) | {"cause": cause.id, "more_us": cause.us, "uncertain_us": uncertain_us},
        fix=fix_of(cause),
        at_most="medium" if late.few else "high",
        ranks=(number,),
    )


def _share(ranks: Ranks, us: float) -> float:
    """Which share of the un-profiled step that is."""
    return min(us / ranks.scale.step_us, 1.0)


def _saving(ranks: Ranks, cause: Cause, low_us: float, high_us: float) -> Saving:
    how = "the step with this rank as fast as the next slowest, from the collectives and the ranks' breakdowns"
    scale = ranks.scale
    low_us, high_us = (plain_us(ranks, max(us, 0.0), cause.python_us) for us in (low_us, high_us))
    if cause.id == "host" and not ranks.on_device:
        # As host-work counts it on one rank: what the Python pushes out of the caches goes with it.
        high_us = min(high_us * SIDE_EFFECTS, scale.step_us)
        how += "; high: plus what its Python evicts from the caches"
    return replace(scale.saving(0.0, 0.0, how), low_us=low_us, high_us=high_us)


def _late(ranks: Ranks, waiting: Waiting) -> _Late | None:
    us = waiting.us
    few = us.shape[1] < _FEW_STEPS
    last = _last_of_meetings(ranks, waiting) if few else us.argmin(axis=0)
    if len(last) < (_FEWEST_MEETINGS if few else 1):
        return None
    position = int(np.bincount(last).argmax())
    others = [other for other in range(len(us)) if other != position]
    lead = us[others].min(axis=0) - us[position]
    talking = ranks.parts_us["exposed_communication" if ranks.on_device else "communication"].mean(axis=1)
    excess_us = float(talking[others].min() - talking[position])
    times = int((last == position).sum())
    often = f"at {times} of {len(last)} collectives" if few else f"in {times} of {len(last)} steps"
    return _Late(position, times / len(last), often, float(lead.mean()), excess_us, few)


def _last_of_meetings(ranks: Ranks, waiting: Waiting) -> Ints:
    """The last rank at each collective that all ranks join."""
    found = [
        np.asarray(meeting.ranks)[late.argmax(axis=1)]
        for meeting, late in zip(ranks.meetings, waiting.late_us, strict=True)
        if len(meeting.ranks) == len(ranks.ranks)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _facts(ranks: Ranks, waiting: Waiting, late: _Late) -> dict[str, object]:
    """Who waits how long, and at which collectives of the step the rank is late."""
    places = sorted(
        {
            int(place)
            for meeting, us in zip(ranks.meetings, waiting.late_us, strict=True)
            if late.position in meeting.ranks
            for place in np.unique(meeting.place)
            if _late_at(us[meeting.place == place], meeting.ranks.index(late.position))
        }
    )
    waits = waiting.us.mean(axis=1)
    return {
        "rank": ranks.ranks[late.position],
        "last_share": late.share,
        "waiting_us_by_rank": {str(rank): float(us) for rank, us in zip(ranks.ranks, waits, strict=True)},
        "late_at_collectives": places,
        "collectives_a_step": max((int(meeting.place.max()) + 1 for meeting in ranks.meetings), default=0),
        "steps": len(ranks.steps),
    }


def _late_at(us: Floats, column: int) -> bool:
    return bool((us.argmax(axis=1) == column).mean() >= _OFTEN)


_FAST = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D][F ][B  ]                    [D][F ][B  ]                    [D][F ][B  ]
    cpu 2             [G                 ]            [G                 ]            [G                 ]
    """
_LATE = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D        ][F ][B  ]            [D        ][F ][B  ]            [D        ][F ][B  ]
    cpu 2                     [G         ]                    [G         ]                    [G         ]
    """
_COUNTING = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D]       [F ][B  ]             [D]       [F ][B  ]             [D]       [F ][B  ]
    cpu 2                     [G         ]                    [G         ]                    [G         ]
    """
_TURNS = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D        ][F ][B  ]            [D][F ][B  ]                    [D        ][F ][B  ]
    cpu 2                     [G         ]            [G                 ]                    [G         ]
    """
_OTHER_TURNS = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D][F ][B  ]                    [D        ][F ][B  ]            [D        ][F ][B  ]
    cpu 2             [G                 ]                    [G         ]                    [G         ]
    """
_HARDLY = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D ][F ][B  ]                   [D ][F ][B  ]                   [D ][F ][B  ]
    cpu 2              [G                ]             [G                ]             [G                ]
    """
_BUSY = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D][F       ][B      ]          [D][F       ][B      ]          [D][F       ][B      ]
    cpu 2                        [G      ]                       [G      ]                       [G      ]
    """
# Rank 0 sends buffers (W) to rank 1 before the forward pass.
_SENDS_LATE = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D         ]    [F ][B  ]       [D         ]    [F ][B  ]       [D         ]    [F ][B  ]
    cpu 2              [W ]         [G    ]            [W ]         [G    ]            [W ]         [G    ]
    """
_WAITS_FOR_IT = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D  ]           [F ][B  ]       [D  ]           [F ][B  ]       [D  ]           [F ][B  ]
    cpu 2       [W        ]         [G    ]     [W        ]         [G    ]     [W        ]         [G    ]
    """
_SENDS_AND_GOES_ON = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D  ]           [F ][B  ]       [D  ]           [F ][B  ]       [D  ]           [F ][B  ]
    cpu 2       [W    ]             [G    ]     [W    ]             [G    ]     [W    ]             [G    ]
    """
_TWICE = """
    cpu 2  [A ]                            [A ]                            [A ]
    """


def _drawn(text: str, world_size: int = 2) -> Drawing:
    names: dict[str, Any] = {"D": NEXT, "F": FORWARD, "B": BACKWARD, "G": GLOO, "A": GLOO}
    if "[W" in text:
        names["W"] = replace(GLOO, name="gloo:broadcast")
    return draw(text + _TWICE, us=1000, world_size=world_size, **names)


# A step of 32 ms that takes 16 ms without the profiler.
_PLAIN: dict[str, Any] = {"steps": {"unprofiled_us": [16_000.0] * 20}}

EXAMPLES = [
    Example(
        "the loader of rank 1 is slower",
        _drawn(_FAST),
        others=(_drawn(_LATE),),
        saves_us=(7000, 9000),
        says=("Rank 1", "its input takes 8 ms more"),
    ),
    Example(
        "Python that rank 1 alone runs: the profiler slowed the rest of the step, and not that",
        _drawn(_FAST),
        facts=_PLAIN,
        others=(_drawn(_COUNTING),),
        other_facts=(_PLAIN | {"rank": 1},),
        saves_us=(5500, 7700),
        says=("Rank 1", "its Python code between ops takes 6 ms more"),
    ),
    Example(
        "the rank that sends buffers before the forward pass comes late, and the other waits for them",
        _drawn(_SENDS_LATE),
        others=(_drawn(_WAITS_FOR_IT),),
        saves_us=(6000, 8000),
        says=("Rank 0", "its input takes 7 ms more"),
    ),
    Example(
        "a rank comes late to buffers that the other has sent by then",
        _drawn(_SENDS_AND_GOES_ON),
        others=(_drawn(_SENDS_LATE),),
        near_miss=True,
    ),
    Example("ranks are late by turns", _drawn(_TURNS), others=(_drawn(_OTHER_TURNS),), near_miss=True),
    Example("one rank is later by a thirtieth of the step", _drawn(_FAST), others=(_drawn(_HARDLY),), near_miss=True),
    Example(
        "computation takes one rank longer: on a host that is a matter of cores",
        _drawn(_FAST),
        others=(_drawn(_BUSY),),
        near_miss=True,
    ),
    Example(
        "two of three ranks are here: the last may be the one that waits for nobody",
        _drawn(_FAST, world_size=3),
        others=(_drawn(_LATE, world_size=3),),
        near_miss=True,
        skipped="could be matched",
    ),
    Example("two equal ranks", _drawn(_FAST), others=(_drawn(_FAST),)),
]
