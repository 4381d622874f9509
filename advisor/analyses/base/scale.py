"""The scale of savings: the un-profiled step where capture timed it, else the profiled one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.analyses.base.odd_steps import period
from advisor.analyses.base.repeats import repeatability
from advisor.analyses.base.steps import Steps
from advisor.analyses.base.watched_run import WatchedRun
from advisor.capture.inside.steps.periodic_steps import pace
from advisor.capture.record import RankRecord, StepTimes
from advisor.model import Basis, Saving, Times

# Un-profiled steps before the window that tell a median, as capture plans where it knows nothing of the loop.
_ENOUGH = 20
# Turns of a loop in which every so many steps one is long, from which on their mean is that of the loop.
_TURNS = 3
# No process became this much faster by itself.
_DISTURBED = 2.0


class Scale(Struct, frozen=True):
    """What one step takes, and how profiled times map to it.

    step_us      value of `step_time_us`: the un-profiled median, else the un-profiled mean, else the profiled median;
                 where profiled steps repeat with a period, the mean over whole periods, and where they differ without
                 one, or long ones recur, the mean of all
    factor       step_us / (|W| per step): profiled µs of a breakdown times this sum to step_us
    unprofiled   distribution of un-profiled steps, only those before the window if there are enough; all None if not
                 captured
    profiled     distribution of profiled steps
    repeats      relative variation of un-profiled steps (`advisor.analyses.base.repeats`); None if not captured
    every        one in so many un-profiled steps is far longer than most; None if there are none
    """

    step_us: float
    factor: float
    unprofiled: Times
    profiled: Times
    repeats: float | None = None
    every: int | None = None

    @property
    def stretched(self) -> float:
        """How many times longer the profiled step is than the un-profiled one; 1 if not known or not longer."""
        known = self.unprofiled.median is not None or self.unprofiled.mean is not None
        return max(1 / self.factor, 1.0) if known and self.factor > 0 else 1.0

    def scaled(self, profiled_us: float) -> float:
        """Profiled µs per step on the scale of step_us, within [0, step_us]."""
        return min(max(profiled_us * self.factor, 0.0), self.step_us)

    def saving(self, low_us: float, high_us: float, how: str, basis: Basis = "modelled") -> Saving:
        """A saving given in profiled µs per step, on the scale of step_us and never more than the step."""
        low, high = self.scaled(low_us), self.scaled(high_us)
        return Saving(min(low, high), max(low, high), basis, how)

    @classmethod
    def compute(cls, steps: Steps, record: RankRecord | None) -> Scale:
        """The scale of this trace."""
        profiled = distribution(steps.profiled_us)
        recorded = record.steps if record else StepTimes()
        times_us = before_the_window(recorded.unprofiled_us, recorded)
        unprofiled = distribution(times_us)
        if unprofiled.median is None and recorded.unprofiled_mean_us:
            unprofiled = Times(mean=recorded.unprofiled_mean_us, n=max(recorded.count, 1))
        step_us = (
            unprofiled.median or unprofiled.mean or profiled_step_us(steps.profiled_us, steps.step_us) or steps.step_us
        )
        every = long_every(recorded)
        return cls(step_us, step_us / steps.step_us, unprofiled, profiled, repeatability(times_us), every)


class MeanStep(Struct, frozen=True):
    """The mean step, un-profiled where captured: a tail of slow steps costs samples, too.

    us   of all training steps of the run where it was watched and has more of them than were timed one by one, without
         what else the loop does between them (evaluations, checkpoints): a single long one among twenty timed steps
         would say that every step is as slow as ten. Steps of other loops of the run say nothing of this one's
    """

    us: float

    @classmethod
    def compute(cls, scale: Scale, watched: WatchedRun | None) -> MeanStep:
        """Of this rank."""
        known = scale.unprofiled.mean or scale.unprofiled.median or scale.profiled.mean or scale.step_us
        if watched is None or watched.loops > 1 or watched.steps <= scale.unprofiled.n:
            return cls(known)
        return cls(watched.per_step_us("training") or known)


def profiled_step_us(times_us: Sequence[float], mean_us: float) -> float | None:
    """What a step of the window takes; None without steps.  mean_us: their mean, or the device's where that is longer.

    The median where steps are alike, so that one that something held up tells nothing. Where they repeat with a period,
    because a loader has two workers or every fourth step updates, the mean over whole periods, the last ones: what
    begins a window is the least like the rest. Where long steps recur without one, or most steps are not like the
    median one (sizes of pictures differ), no median says what a step takes, and all times of the window are those of a
    mean step: on the scale of the median a step that computes for 36 ms between waits would compute for 14.
    """
    times = np.asarray(times_us, float)
    if not len(times):
        return None
    every = period(times)
    if every == 1:
        return float(np.median(times))
    return float(times[len(times) % every :].mean()) if every else mean_us


def before_the_window(times_us: Sequence[float], recorded: StepTimes) -> Sequence[float]:
    """Of the times of un-profiled steps those before the profiled window, where these are enough; else all.

    times_us: the steps, or one part of each of them; which of them count is told by the steps, for every part alike.

    The profiler leaves the allocator of a process in another state: in a quarter of the measured scripts every step
    after the window was 10 to 40 % faster than before it and than without us. Where the steps before it are far slower,
    something else disturbed them; where every so many steps one is long, a few turns are needed to tell how much.
    """
    count = recorded.timed_before or 0
    before, after = recorded.unprofiled_us[:count], recorded.unprofiled_us[count:]
    disturbed = len(after) > 0 and np.median(before if len(before) else [0.0]) > _DISTURBED * np.median(after)
    enough = max(_ENOUGH, _TURNS * (long_every(recorded) or 0))
    return times_us if count < enough or disturbed else times_us[:count]


def long_every(recorded: StepTimes) -> int | None:
    """Every so many un-profiled steps one is far longer than most; None where that is not seen."""
    times_us, count = recorded.unprofiled_us, recorded.timed_before or 0
    # The window lies between the two and breaks the rhythm.
    before, after = times_us[:count], times_us[count:]
    found = pace(list(enumerate(before if len(before) > len(after) else after)))
    return found.every if found is not None else None


def distribution(values_us: Sequence[float]) -> Times:
    """Mean, median and deciles of step times in µs; all None without values."""
    if not len(values_us):
        return Times()
    p10, median, p90 = (float(value) for value in np.percentile(np.asarray(values_us, float), (10, 50, 90)))
    return Times(float(np.mean(values_us)), median, p10, p90, len(values_us))
