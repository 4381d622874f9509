"""Waits for batches that are long every few steps, as an epoch begins: the median step does not show them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.api import Loader, RankRecord, StepTimes

from ..shared._batches import opening
from ..shared._words import count

# A wait is long from this many times the median one on, and from this share of the median step: waits of some µs differ
# by more than that.
_LONG, _OF_STEP = 2.0, 0.05
# What the mean tells beyond the median, as a share of the step: less is within what either is known by.
_TELLS = 0.05
# Long waits that recur by chance do so a few times.
_FEWEST = 4


class UnevenWaits(Struct, frozen=True):
    """Waits of the un-profiled steps, µs, where every so many steps (`every`) one is long.

    us, step_us  the mean wait and the mean step;  usual_us: the median wait
    """

    us: float
    step_us: float
    usual_us: float
    every: int

    @property
    def share(self) -> float:
        """Of all time."""
        return self.us / self.step_us

    @property
    def said(self) -> str:
        """How they differ, as a message says it."""
        return f", more every {count(self.every)} steps, as an epoch begins, than in the median step"


def uneven_waits(record: RankRecord | None, facts: Loader | None) -> UnevenWaits | None:
    """The waits, if they are uneven and an epoch's beginning explains it; else None: the median step tells all.

    Without a device only: then the hooks time each step's fetch by itself.
    """
    timed = record.steps if record else StepTimes()
    waits, steps = np.asarray(timed.unprofiled_parts_us.get("fetch", ()), float), _steps(timed)
    if facts is None or not facts.num_workers or not (facts.dataset_size and facts.batch_size) or len(waits) < 2:
        return None
    usual_us, step_us = float(np.median(waits)), float(np.median(steps))
    every = max(facts.dataset_size // facts.batch_size, 1)
    long = waits > max(_LONG * usual_us, usual_us + _OF_STEP * step_us)
    tells = waits.mean() / steps.mean() - usual_us / step_us
    if tells < _TELLS or long.sum() < _FEWEST or not _recurs(long, every, timed.timed_before or 0):
        return None
    return UnevenWaits(float(waits.mean()), float(steps.mean()), usual_us, every)


def _steps(timed: StepTimes) -> np.typing.NDArray[np.float64]:
    """The steps of which all parts are known."""
    parts = [np.asarray(times, float) for times in timed.unprofiled_parts_us.values()]
    return np.asarray(sum(parts, np.zeros(1)))


def _recurs(long: Sequence[bool] | np.typing.NDArray[np.bool_], every: int, before: int) -> bool:
    """Whether most epochs begin with a long wait. The profiled window lies behind so many of them: no epoch crosses."""
    whole = np.asarray(long)
    phase = max(whole[:before], whole[before:], key=len)
    if len(phase) < 2 * every or every < 2:
        return False
    return opening(phase, every) is not None
