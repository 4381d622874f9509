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

    first, last       the last commit before it and the first after it: neighbours in a step, far apart in a drift
    at                indices of both in the series' points
    before, after     levels;  share: change of the level (0.03 = 3 % more)
    per_commit        of a drift: mean change from one commit to the next, as a share
    p                 of random orders of the same results, the share with a change as large
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

    noise   standard deviation of neighbours' difference over the square root of two, as a share of the level; None
            where too few
    why     why no change was looked for; "" where it was
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
    """All series of a file. exit_code: 1 where the last change of a series is for the worse by more than the margin."""

    name: str
    series: tuple[Series, ...]
    notes: tuple[str, ...]
    exit_code: int
