"""Whether a change leaves the numbers of a training as they are: losses of both processes, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.model import Numbers

# Fewer losses than this say nothing about a training.
_FEWEST = 3
# A change that only draws other random numbers is one more pair of seeds, as the band is: either may be the farther
# one. The logarithms of two mean squares of m numbers alike differ by more than this many times
# sqrt(4 / m) in one of a hundred cases; losses of neighbouring steps are alike, so a quarter of the steps counts.
_BEYOND_CHANCE, _ALIKE_STEPS = 2.33, 4


@dataclass(frozen=True, slots=True)
class Band:
    """How far losses differ without any change, as root mean square over the steps.

    repeats: equal seeds give bitwise equal losses;  own: between runs with equal seeds;  seeds: with other seeds
    Each is None where no losses were seen.
    """

    repeats: bool | None = None
    own: float | None = None
    seeds: float | None = None

    @property
    def width(self) -> float | None:
        """The larger of both; None where nothing moves the losses, so that no band is known."""
        return max(self.own or 0.0, self.seeds or 0.0) or None


def compare(base: Sequence[float], head: Sequence[float], band: Band) -> tuple[Numbers, str]:
    """What the losses of a pair say, and why where they say nothing."""
    count = min(len(base), len(head))
    if count < _FEWEST:
        return "not compared", "no backward pass from a scalar loss was detected"
    if same(base, head):
        return "equal", ""
    if any(math.isfinite(a) and not math.isfinite(b) for a, b in zip(base, head, strict=False)):
        return "outside seeds", "a loss is no longer finite"
    if band.width is None:
        return "not compared", "the losses of this script do not depend on its seeds, so no range is known"
    return ("within seeds" if distance(base, head) <= band.width * _by_chance(count) else "outside seeds"), ""


def _by_chance(steps: int) -> float:
    """By which factor one pair of seeds may lie farther apart than another, over so many steps."""
    return math.exp(_BEYOND_CHANCE / math.sqrt(max(steps / _ALIKE_STEPS, 1.0)))


def same(base: Sequence[float], head: Sequence[float]) -> bool:
    """Whether all losses that both have are bitwise equal; a NaN equals a NaN."""
    pairs = zip(base, head, strict=False)
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def distance(base: Sequence[float], head: Sequence[float]) -> float:
    """Root mean square of the difference over the steps that both have; steps without finite losses left out."""
    squares = [(a - b) ** 2 for a, b in zip(base, head, strict=False) if math.isfinite(a) and math.isfinite(b)]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0
