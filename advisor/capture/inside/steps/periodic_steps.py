"""Loops in which one step in so many is far longer: a validation, a decoding, a checkpoint every tenth step.

The step whose lines are recorded is one of thousands. Where some are of another kind, one of each has to be recorded,
or the lines of what makes them long stand nowhere. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# A step is long if it takes half as long again as the common ones: less is what steps differ by anyway.
_LONG = 1.5
# The common ones: where every second step is long, a quarter of all is still shorter.
_COMMON = 0.25
# The script runs so many steps without being recorded at most until the other kind comes: what is rarer costs little.
_MOST_STEPS = 25
# Fewer turns are a coincidence, unless the long steps take more than all others together: one step of a busy machine
# does, two at random do not. (An agent that plays for a while, and then learns in sixteen small steps.)
_FEWEST_TURNS, _TURNS_OF_MOST = 3, 2
_MOST = 0.5
# Of the turns so many are long, and of the long steps so many lie in one: others come from elsewhere.
_MOSTLY, _OF_LONG = 0.8, 0.4

# The number of an iteration, and how long it took.
Times = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Pace:
    """Every so many iterations one is long: those whose number leaves `place` over."""

    every: int
    place: int

    def is_long(self, iteration: int) -> bool:
        """Whether this one will be long."""
        return iteration % self.every == self.place


def pace(*phases: Times) -> Pace | None:
    """The pace of some iterations, timed in phases that are each slowed alike; None where one is like the other.

    Where steps after the long one are long as well (caches, a core that slept), it is the longest that sets the pace.
    """
    seen = {iteration: ratio for times in phases for iteration, ratio in _ratios(times)}
    long = {iteration for iteration, ratio in seen.items() if ratio > _LONG}
    for every in range(2, _MOST_STEPS + 1):
        found = [place for place in {iteration % every for iteration in long} if _sets_it(seen, long, every, place)]
        if found:
            return Pace(every, max(found, key=lambda place: sum(seen[one] for one in seen if one % every == place)))
    return None


def _sets_it(seen: Mapping[int, float], long: set[int], every: int, place: int) -> bool:
    """Whether nearly every turn is long there, and much of what is long, or most of the time, lies there."""
    turns = [iteration for iteration in seen if iteration % every == place]
    hits = sum(iteration in long for iteration in turns)
    most = sum(seen[one] for one in turns) >= _MOST * sum(seen.values())
    enough = len(turns) >= (_TURNS_OF_MOST if most else _FEWEST_TURNS)
    return enough and hits >= _MOSTLY * len(turns) and (most or hits >= _OF_LONG * len(long))


def _ratios(times: Times) -> list[tuple[int, float]]:
    """How many times as long as the common ones each is."""
    if not times:
        return []
    common = max(sorted(took for _, took in times)[int(_COMMON * len(times))], 1.0)
    return [(iteration, took / common) for iteration, took in times]
