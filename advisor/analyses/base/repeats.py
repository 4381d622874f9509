"""How far the step time repeats, and what that does to a promise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from advisor.constants import constant, runs_deviation
from advisor.model import Joint, Outcome, Saving

# Steps of one block: its median is not moved by one burst of other work. Fewer blocks tell no deviation.
_BLOCK, _FEWEST_BLOCKS = 5, 4
# Steps differ more among themselves than runs do: by 20 % where runs differ by 7.
_MOST = constant("runs.repeat_most").value
# The difference of two runs has twice the variance of one.
_BETWEEN = runs_deviation() / 2**0.5


def repeatability(times_us: Sequence[float]) -> float | None:
    """How far the time of a step repeats: relative standard deviation of the medians of blocks of five steps.

    times_us: un-profiled steps in order, µs. At most 0.07; None where there are fewer than 20 steps.
    """
    blocks = len(times_us) // _BLOCK
    if blocks < _FEWEST_BLOCKS:
        return None
    medians = np.median(np.reshape(np.asarray(times_us[: blocks * _BLOCK], float), (blocks, _BLOCK)), axis=1)
    if medians.min() <= 0:
        return None
    return min(float(np.std(np.log(medians), ddof=1)), _MOST)


def between_runs(timed: bool, on_device: bool) -> float:
    """What one run cannot show: the relative standard deviation of a host's step time among runs.

    timed: whether un-profiled steps were; of steps of a device it was not measured, and is none.
    """
    return _BETWEEN if timed and not on_device else 0.0


def widened(saving: Saving, step_us: float, repeats: float | None, between: float = 0.0) -> Saving:
    """The saving that runs of before and after will show: by how far a step repeats, either end lies farther out.

    The time of the fault was taken from other steps than the step time, and the steps after the fix are a third sample:
    the error of what is removed and that of what remains add up to about `repeats` of the step, whatever the saving
    is (0.8 to 1.4 of it); and so do those of other runs (`between`), where that is more. The upper end is at most
    doubled: what is small stays small. Other runs at most halve the lower end: what is certain in this one stays so.
    """
    within_us, between_us = (repeats or 0.0) * step_us, between * step_us
    more = max(within_us, between_us)
    if not more or saving.high_us <= 0:
        return saving
    high = min(saving.high_us + more, 2 * saving.high_us, max(step_us, saving.high_us))
    low = min(max(saving.low_us - within_us, 0.0), max(saving.low_us - between_us, saving.low_us / 2))
    return saving.wider(low, high, "steps", (high - low) - (saving.high_us - saving.low_us))


def of_outcome(outcome: Outcome, step_us: float, repeats: float | None, between: float = 0.0) -> Outcome:
    """The outcome with the savings of its findings widened."""
    findings = (replace(f, saving=f.saving and widened(f.saving, step_us, repeats, between)) for f in outcome.findings)
    return replace(outcome, findings=tuple(findings))


def of_joint(joint: Joint | None, step_us: float, repeats: float | None, between: float = 0.0) -> Joint | None:
    """What all fixes give back together, widened like each of them."""
    if joint is None:
        return None
    wide = widened(Saving(joint.low_us, joint.high_us, joint.basis, ""), step_us, repeats, between)
    after = step_us - (wide.low_us + wide.high_us) / 2
    return replace(joint, low_us=wide.low_us, high_us=wide.high_us, step_us_after=after)
