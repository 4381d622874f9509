"""Where the time of the whole run went."""

from __future__ import annotations

from msgspec import Struct

from advisor.model.source import Source


class RunLine(Struct, frozen=True):
    """A line of the user's that took a part of the run, in µs of the run.

    inner: the line of a called function that took most of that; guard: the `if` that runs it every N steps
    (`step % 100 == 0`); loop: the outermost loop in called functions that repeats it; turn: the line in that loop, in
    the same function, that took most of it; outside: it lies outside of the innermost loop around the training step.
    """

    source: Source
    us: float
    inner: Source | None = None
    guard: Source | None = None
    loop: Source | None = None
    turn: Source | None = None
    outside: bool = False


class RunPart(Struct, frozen=True):
    """A part of the timed run, µs of the run.

    share: of the time between start-up and the last step; None of what lies outside it. error_us: the standard error of
    `us`; times: how often, None: unknown. lines: those that took most of it, the costliest first.
    """

    id: str
    us: float
    share: float | None
    error_us: float = 0.0
    times: float | None = None
    lines: tuple[RunLine, ...] = ()


class RunAccount(Struct, frozen=True):
    """Where the time of the run went, as far as it was timed, on one rank.

    us      duration of the run: from the start of the process to the last record, without `ours_us`; the sum of parts
    steps   training steps in it
    ours_us time of the run under capture's profiler and in its own work between steps
    sampled number of samples of the loop's stack that distinguish the parts
    """

    us: float
    steps: int
    ours_us: float
    parts: tuple[RunPart, ...]
    rank: int = 0
    sampled: int = 0

    @property
    def loop_us(self) -> float:
        """Time between start-up and the last training step, µs, which shares are of."""
        return sum(part.us for part in self.parts if part.share is not None)
