"""Where the time of the whole run went."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model.source import Source


@dataclass(frozen=True, slots=True)
class RunLine:
    """A line of the user's in which a part of the run passed, in µs of the run.

    inner: where below it most of that; guard: the `if` that lets it happen every so many times (`step % 100 == 0`);
    loop: what repeats that below it, the outermost.
    """

    source: Source
    us: float
    inner: Source | None = None
    guard: Source | None = None
    loop: Source | None = None


@dataclass(frozen=True, slots=True)
class RunPart:
    """A part of the watched run, µs of the run. error_us: the standard error of `us`; times: how often, None: unknown.

    lines: those in which most of it passed, the costliest first.
    """

    id: str
    us: float
    share: float
    error_us: float = 0.0
    times: float | None = None
    lines: tuple[RunLine, ...] = ()


@dataclass(frozen=True, slots=True)
class RunAccount:
    """Where the time of the run went, as far as it was watched, on one rank.

    us      of the run: from the start of the process to the last record, without `ours_us`; the parts sum to it
    steps   training steps in it
    ours_us of the run under the profiler of capture and in its work between steps
    sampled how many samples of the loop's stack tell the parts of one stretch from each other
    """

    us: float
    steps: int
    ours_us: float
    parts: tuple[RunPart, ...]
    rank: int = 0
    sampled: int = 0
