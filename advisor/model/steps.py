"""Steps: how many, how long, and the parts that one consists of."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

StepSource = Literal["user", "loader", "optimizer", "backward", "repetition", "window"]


class Times(Struct, frozen=True):
    """Distribution of step times in µs; None where not measured."""

    mean: float | None = None
    median: float | None = None
    p10: float | None = None
    p90: float | None = None
    n: int = 0


class StepsSummary(Struct, frozen=True):
    """Number of steps, how they were detected, and how long they took.

    dilation is profiled median / un-profiled median: the overhead of the profiler.
    repeats is the relative standard deviation of the medians of blocks of five un-profiled steps, at most 0.07; None if
    not captured. The ends of each saving's range are moved outwards by 1.12 times that, as a share of themselves.
    series_us holds the un-profiled step times in order (at most 500), else the profiled ones.
    host_us is the median time in which the host issues a profiled step, device_us that in which the device completes
    one (between the ends of the last work that consecutive steps launched); None if not known.
    startup_us is excluded start-up time: startup_count leading steps, and calls before them. If no step without
    start-up was recorded, steady is False, and no figure describes the training.
    """

    count: int = 0
    source: StepSource = "window"
    eval_count: int = 0
    profiled_us: Times = Times()
    unprofiled_us: Times = Times()
    dilation: float | None = None
    repeats: float | None = None
    host_us: float | None = None
    device_us: float | None = None
    startup_us: float = 0.0
    startup_count: int = 0
    steady: bool = True
    series_us: tuple[float, ...] = ()


class BreakdownItem(Struct, frozen=True):
    """A part of the step; shares of one breakdown sum to 1, `us` is that share of the profiled step."""

    id: str
    us: float
    share: float
