"""What fixes save, alone and together, and how far the replay behind it can be trusted."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

# An end below half a per cent of the step is nothing: it would be shown as 0 %, and half of 188 scripts that were run
# five times each did not repeat their step time within 2.2 %.
NOTHING_SHARE = 0.005
Basis = Literal["replayed", "measured", "modelled", "assumed"]


class Saving(Struct, frozen=True):
    """Time per step that a fix saves, in µs on the scale of `step_time_us` (without the profiler if captured).

    width_us: by how many µs unknowns of this run widen the range: `steps` (step times vary), `profiler` (which ops it
    slowed down), `instead` (the cost of replacement ops), `predictions` (by how much they were off when they were
    checked). The rest of the width is the uncertainty of the change itself, which `how` describes.
    """

    low_us: float
    high_us: float
    basis: Basis
    how: str
    width_us: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.low_us <= self.high_us:
            raise ValueError(f"a saving needs 0 <= low_us <= high_us, got {self.low_us} and {self.high_us}")

    def is_bound(self, step_us: float | None) -> bool:
        """Whether it is only an upper bound: the low end is less than half a per cent of the step."""
        return self.low_us <= 0 or self.low_us < NOTHING_SHARE * (step_us or 0.0)

    def wider(self, low_us: float, high_us: float, why: str, by_us: float) -> Saving:
        """The saving with these ends, whose width is by so many µs due to `why`."""
        known = self.width_us | {why: self.width_us.get(why, 0.0) + by_us} if by_us > 0 else self.width_us
        return replace(self, low_us=low_us, high_us=high_us, width_us=known)


class Joint(Struct, frozen=True):
    """Saving of all accepted fixes together; never the sum of the single savings."""

    low_us: float
    high_us: float
    step_us_after: float
    basis: Basis = "modelled"


class ReplayCheck(Struct, frozen=True):
    """Error of the unchanged replay relative to the measured step."""

    error_share: float
    low_confidence: bool
