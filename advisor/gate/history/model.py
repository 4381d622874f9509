"""The nouns of a history: results in the order of recording, and where their level changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Point:
    """A commit's result: the median of its lines. count: how many of them."""

    commit: str
    when: str
    value: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Changed:
    """A change of the level between two commits.

    first, last       the last commit before it and the first after it: adjacent for a step, apart for a drift
    at                indices of both in the series' points
    before, after     levels;  share: change of the level (0.03 = 3 % more)
    per_commit        for a drift: mean change from one commit to the next, as a share
    p                 p-value of a permutation test: share of random orders with a change as large
    """

    kind: Literal["step", "drift"]
    worse: bool
    first: str
    last: str
    at: tuple[int, int]
    before: float
    after: float
    share: float
    p: float
    per_commit: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one workload in one environment, in the order of recording.

    noise   standard deviation of the differences of neighbors over the square root of two, as a share of the level;
            None if there are too few
    why     why changes were not searched for; "" if they were
    """

    workload: str
    fingerprint: dict[str, str]
    metric: str
    unit: str
    points: tuple[Point, ...]
    changes: tuple[Changed, ...]
    noise: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """All series of a file. exit_code: 1 if the last change of a series is a regression beyond the margin."""

    name: str
    series: tuple[Series, ...]
    notes: tuple[str, ...]
    exit_code: int
