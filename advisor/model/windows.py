"""Several windows of one run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """What takes another time in a later window than in the first, µs and calls per step without the profiler.

    kind  part (of the step, by its breakdown id), line (of the user's), op (a kernel where there is a device)
    """

    kind: str
    name: str
    before_us: float
    before_calls: float
    after_us: float
    after_calls: float


@dataclass(frozen=True, slots=True)
class ProfiledWindow:
    """One of several windows of a run.

    at         training iterations before it
    why        first | every (so many steps) | asked (for) | slower (steps became slower)
    steps      profiled ones in it
    step_us    a step without the profiler, just before it: their median; spread_us: their 10 % and 90 % points
    moved      against the first window, the largest difference of each kind first
    """

    at: int
    why: str
    steps: int
    step_us: float
    spread_us: tuple[float | None, float | None] = (None, None)
    moved: tuple[Moved, ...] = ()
