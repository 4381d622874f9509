"""Ranks run garbage collection at different steps.

## What it looks at
Pauses of Python's garbage collector on every rank, and how much longer than ordinary ones some steps took, as capture
timed both without the profiler. If the time lost is the sum of all ranks' pauses, they happened one after
the other; pauses at the same steps would cost only as much as those of one rank. Needs the records of all ranks.

## Why it costs time
A rank that pauses is late to the next collective, and all others wait for it. With many ranks, nearly every step has
one that pauses.

## How to fix it
Disable automatic collections and collect on all ranks at the same step: `gc.disable()`, and `gc.collect()` every
few hundred steps. Exclude what lives for the whole run with `gc.freeze()`.

## When to leave it
Ranks that do not wait for each other in each step, for example if parameters are averaged every N steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import GLOO, Drawing, Example, Finding, Missing, RankFacts, Ranks, Saving, constant, draw, duration

from ..shared._words import percent
from ._stragglers import COLLECT_TOGETHER

# Not confirmed: its pair was measured once, on a busy machine: 15 % [2, 26].
# Steps shorter than this share of all are ordinary ones: collections come in fewer than three of four steps.
_ORDINARY = 0.25
# Least share of garbage collections of ranks that goes when all collect at the same step.
_SURE = constant("share.synchronized_collections").value
# Above it the pauses of the ranks were one after the other; at 1 / ranks they were all at the same steps.
_APART = 0.75


def check(
    ranks: Ranks,
    *,
    min_share: float = 0.03,  # two lines, the same on all ranks; below 3 % the spread of the steps hides the gain
) -> Iterator[Finding]:
    paused = [_paused_us(one) for one in ranks.facts]
    if not ranks.whole or any(us is None for us in paused):
        raise Missing("garbage collector pauses are not known for all ranks; capture all with `advisor run`")
    known = np.array([us for us in paused if us is not None])
    together_us, apart_us = float(known.max()), float(known.sum())
    reference = ranks.facts[ranks.reference]
    steps = np.asarray(reference.record.steps.unprofiled_us if reference.record else ())
    lost_us = float(steps.mean() - np.quantile(steps, _ORDINARY))
    saved_us, mean_us = apart_us - together_us, float(steps.mean())
    if saved_us < min_share * mean_us or lost_us < max(_APART * apart_us, (together_us + apart_us) / 2):
        return
    # A share of the mean step is what the training gains, whether or not an ordinary step has a pause.
    step_us = reference.scale.step_us
    high_us = min(saved_us / mean_us, 1.0) * step_us
    low_us = _SURE * min(max(min(lost_us, apart_us) - together_us, 0.0) / mean_us, 1.0) * step_us
    yield Finding(
        message=(
            f"{len(known)} ranks collect garbage at different steps: an average step takes {duration(lost_us)} longer "
            f"than an ordinary one ({percent(lost_us / mean_us)}), the sum of the pauses of all ranks "
            f"({duration(apart_us)} a step); with pauses at the same steps it would be {duration(together_us)}."
        ),
        saving=Saving(
            min(low_us, high_us), high_us, "measured", "the pauses of all ranks, without those of the longest"
        ),
        facts={
            "pause_us_by_rank": {str(rank): float(us) for rank, us in zip(ranks.ranks, known, strict=True)},
            "lost_us": lost_us,
        },
        fix=COLLECT_TOGETHER,
    )


def _paused_us(one: RankFacts) -> float | None:
    """Pauses per timed step; None where pauses or single steps were not recorded."""
    record = one.record
    if record is None or record.gc_pauses_us is None or not record.steps.unprofiled_us:
        return None
    return sum(record.gc_pauses_us) / len(record.steps.unprofiled_us)


def _drawn() -> Drawing:
    return draw(
        """
        step   [1                     ][2                     ]
        cpu    [F ][B  ]               [F ][B  ]
        cpu 2  [A ]     [A          ]  [A ]     [A          ]
        """,
        us=1000,
        world_size=2,
        A=GLOO,
    )


def _paused(steps_us: list[float], pauses_us: list[float] | None) -> dict[str, Any]:
    return {"world_size": 2, "steps": {"unprofiled_us": steps_us}, "gc_pauses_us": pauses_us}


# Ten steps of 20 ms; a pause of 10 ms in two of them on each rank.
_SCATTERED = [20e3, 30e3, 20e3, 30e3, 20e3, 20e3, 30e3, 20e3, 30e3, 20e3]
_AT_ONCE = [20e3, 30e3, 20e3, 20e3, 20e3, 20e3, 30e3, 20e3, 20e3, 20e3]

EXAMPLES = [
    Example(
        "two ranks pause by turns",
        _drawn(),
        facts=_paused(_SCATTERED, [10e3, 10e3]),
        others=(_drawn(),),
        other_facts=(_paused(_SCATTERED, [10e3, 10e3]),),
        saves_us=(400, 2500),
        says=("2 ranks collect", "4 ms longer", "2 ms."),
    ),
    Example(
        "two ranks pause at the same steps",
        _drawn(),
        facts=_paused(_AT_ONCE, [10e3, 10e3]),
        others=(_drawn(),),
        other_facts=(_paused(_AT_ONCE, [10e3, 10e3]),),
        near_miss=True,
    ),
    Example(
        "one rank alone pauses",
        _drawn(),
        facts=_paused(_AT_ONCE, [10e3, 10e3]),
        others=(_drawn(),),
        other_facts=(_paused(_AT_ONCE, []),),
        near_miss=True,
    ),
    Example(
        "no pauses, and steps of different length",
        _drawn(),
        facts=_paused(_SCATTERED, []),
        others=(_drawn(),),
        other_facts=(_paused(_SCATTERED, []),),
    ),
]
