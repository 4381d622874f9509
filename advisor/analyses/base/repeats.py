"""How far the step time repeats, and what that does to a promise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.constants import constant
from advisor.model import Saving

# Steps of one block: its median is not moved by one burst of other work. Fewer blocks tell no deviation.
_BLOCK, _FEWEST_BLOCKS = 5, 4
# Steps differ more among themselves than runs do: by 20 % where runs differ by 7.
_MOST = constant("runs.repeat_most").value
# What goes is told by about as many profiled steps as a block has, the step by four blocks of timed ones.
_OF_SHARE = (1 + 1 / _FEWEST_BLOCKS) ** 0.5


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


def widened(saving: Saving, step_us: float, repeats: float | None) -> Saving:
    """The saving with both ends as far out as steps of this run differ.

    The time of what goes was taken from other steps than the step time: their quotient is off by the errors of both,
    and the saving by that share of itself. How far two runs that check it differ is no part of what the change saves.
    """
    off = _OF_SHARE * (repeats or 0.0)
    if not off or saving.high_us <= 0:
        return saving
    low, high = saving.low_us * (1 - off), min(saving.high_us * (1 + off), max(step_us, saving.high_us))
    return saving.wider(low, high, "steps", (high - low) - (saving.high_us - saving.low_us))
