"""Several windows of one run."""

from __future__ import annotations

from msgspec import Struct


class Moved(Struct, frozen=True):
    """A difference between a later window and the first, µs and calls per step without the profiler.

    kind  part (of the step, by its breakdown id), line (of the user's), op (a kernel if there is a device)
    """

    kind: str
    name: str
    before_us: float
    before_calls: float
    after_us: float
    after_calls: float


class ProfiledWindow(Struct, frozen=True):
    """One of several windows of a run.

    at         training iterations before it
    why        first | every (`--every N`) | asked (requested) | slower (steps became slower) | elsewhere (another loop)
    steps      profiled steps in it
    step_us    median of the un-profiled steps just before it; spread_us: their 10th and 90th percentiles
    moved      differences from the first window, the largest of each kind first
    """

    at: int
    why: str
    steps: int
    step_us: float
    spread_us: tuple[float | None, float | None] = (None, None)
    moved: tuple[Moved, ...] = ()
