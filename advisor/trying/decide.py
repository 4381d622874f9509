"""Whether a change is faster: the gate's test on pairs, with one error budget for all changes that are tried.

Every change gets an equal part of the budget, and each of its looks an equal part of that, so that the chance that any
change at all is called faster that is not stays below the budget, however many are tried and whatever they share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from advisor.gate import sequential, signed_rank

Verdict = Literal["faster", "slower", "not proven"]
# The interval that is shown: 2.5 % on each side, shared by the looks.
_SHOWN = 0.025


@dataclass(frozen=True, slots=True)
class Design:
    """What is asked of the test.

    tests: changes that may be called faster;  margin: a smaller gain is not worth a change of the script;
    confirmation: new pairs of a change that was called faster
    """

    tests: int
    error: float = 0.05
    margin: float = 0.02
    looks: tuple[int, ...] = (4, 6, 10)
    confirmation: int = 4

    def alpha_per_look(self, alpha: float) -> float:
        """An equal part for each look: the sum bounds the chance of any error."""
        return alpha / len(self.looks)


@dataclass(frozen=True, slots=True)
class Judged:
    """gain, low, high: share of the base's step that is saved, with its 95 % interval. final: no more pairs needed."""

    verdict: Verdict
    gain: float
    low: float
    high: float
    pairs: int
    final: bool

    @property
    def clear(self) -> bool:
        """Whether at least half of the gain is certain: chance seldom makes such a one of nothing."""
        return self.low >= self.gain / 2


def judge(ratios: Sequence[float], design: Design, floor: float) -> Judged:
    """The test on the log ratios (changed / base) of the pairs so far. floor: noise of base against base, log units.

    A change that shows no gain at the first look, or whose interval excludes the margin, is not measured further: to
    stop early without calling it faster cannot add false wins.
    """
    values = np.asarray(ratios, np.float64)
    # A few pairs that happen to agree must not look more precise than the machine has shown itself to be.
    noise = max(float(values.std(ddof=1)), floor)
    shown = sequential.bounds(values, noise, design.alpha_per_look(_SHOWN))
    strict = sequential.bounds(values, noise, design.alpha_per_look(design.error / design.tests))
    gain = -math.expm1(signed_rank.hodges_lehmann(values))
    low, high = -math.expm1(shown[1]), -math.expm1(shown[0])
    verdict: Verdict = "not proven"
    if strict[1] < 0 and low > 0 and gain > design.margin:
        verdict = "faster"
    elif strict[0] > 0 and high < 0:
        verdict = "slower"
    hopeless = gain <= 0 or high < design.margin
    return Judged(verdict, gain, low, high, len(ratios), verdict != "not proven" or hopeless)


def confirm(first: Sequence[float], fresh: Sequence[float], design: Design, floor: float) -> Judged:
    """All pairs of a change that was called faster by the first ones; it is only if the new ones alone say so, too.

    Their middle has to show a gain that is worth a change. What chance made of four pairs it seldom makes of the next
    four, and a true gain seldom fails: the error budget holds without this, which makes errors rarer still.
    """
    judged = judge([*first, *fresh], design, floor)
    again = -math.expm1(signed_rank.hodges_lehmann(np.asarray(fresh, np.float64)))
    kept = again > design.margin and judged.low > 0
    return replace(judged, verdict="faster" if kept else "not proven", final=True)
