"""The sequential test on paired step times: pass, regression or inconclusive with controlled error rates.

A pair is two fresh processes, one of each side, that took turns; its one number is the median of the log ratios
head/base of its steps. Steps are not independent samples, so they never count as such.

The test looks at most three times and spends a third of alpha at each look. It says *regression* only if the one-sided
lower bound of the change is above zero and the change (Hodges-Lehmann) is beyond the margin; it says *pass* only if the
upper bound excludes the tolerance and a change of that size would have been found. From nine pairs on the bounds are
those of Wilcoxon's signed ranks, which need no normal noise: random order within a pair makes the sign of pure noise a
coin toss. Six pairs can reach no such bound, so there it is Student's, with the noise of the self-test as a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.arrays import Floats
from advisor.gate import signed_rank
from advisor.gate.model import Verdict
from advisor.gate.sequential_design import SequentialDesign
from advisor.gate.student import quantile

# More pairs than this is an afternoon, not a gate: beyond it the answer is "reduce the noise".
_AFFORDABLE_PAIRS = 200
# A regression this close to the margin is repeated: near it chance decides between the two verdicts.
_NEAR_MARGIN = 1.5
# Where even the last look could only find changes this many times the tolerance, measuring on is a waste of minutes.
_HOPELESS = 5.0
# Half of all normal values lie within 1 / 1.4826 of a standard deviation.
_NORMAL = 1.4826


@dataclass(frozen=True, slots=True)
class Look:
    """The test after some pairs. Shares of the base's step time; `detectable` is found with the design's power."""

    decision: Verdict
    change: float
    low: float
    high: float
    noise: float
    detectable: float
    pairs: int
    further_pairs: int | None = None
    confirmed: bool | None = None


def run(measure: Callable[[], float], design: SequentialDesign, self_test: Sequence[float] = ()) -> Look:
    """Measures pairs until the test decides. `measure` gives one pair's log ratio; `self_test` those of base/base."""
    floor = noise_floor(self_test)
    if self_test and detectable(floor, design.looks[-1], design) > _HOPELESS * design.tolerance:
        return _hopeless(self_test, floor, design)
    first, ratios = _series(measure, design, floor)
    if first.decision != "regression" or first.change >= _NEAR_MARGIN * design.margin:
        return first
    second, more = _series(measure, design, floor)
    if second.decision == "regression":
        return replace(look([*ratios, *more], design, floor), decision="regression", further_pairs=None, confirmed=True)
    both = look([*ratios, *more], design, floor)
    # Not confirmed: only the bound may still acquit it, on all the pairs.
    decision: Verdict = "pass" if both.decision == "pass" else "inconclusive"
    return replace(both, decision=decision, confirmed=False)


def _series(measure: Callable[[], float], design: SequentialDesign, floor: float) -> tuple[Look, list[float]]:
    ratios: list[float] = []
    for pairs in design.looks:
        while len(ratios) < pairs:
            ratios.append(measure())
        result = look(ratios, design, floor)
        if result.decision != "inconclusive":
            break
    return result, ratios


def look(ratios: Sequence[float], design: SequentialDesign, floor: float = 0.0) -> Look:
    """The test on the log ratios of the pairs so far. `floor`: the noise of the self-test, in log units."""
    values = np.asarray(ratios, np.float64)
    pairs = len(values)
    # A few pairs that happen to agree must not look more precise than the machine has shown itself to be.
    noise = max(float(values.std(ddof=1)), floor)
    effect = signed_rank.hodges_lehmann(values)
    low, high = bounds(values, noise, design.alpha_per_look)
    found = detectable(noise, pairs, design)
    decision: Verdict = "inconclusive"
    if low > 0 and effect > math.log1p(design.margin):
        decision = "regression"
    elif high < math.log1p(design.tolerance) and found <= design.tolerance:
        decision = "pass"
    return Look(
        decision=decision,
        change=math.expm1(effect),
        low=math.expm1(low),
        high=math.expm1(high),
        noise=math.expm1(noise),
        detectable=found,
        pairs=pairs,
        further_pairs=further_pairs(effect, noise, pairs, design) if decision == "inconclusive" else None,
    )


def bounds(values: Floats, noise: float, alpha: float) -> tuple[float, float]:
    """One-sided lower and upper bound of the centre, each missed with at most `alpha`; noise: at least this."""
    if signed_rank.possible(len(values), alpha):
        return signed_rank.bounds(values, alpha)
    mean, reach = float(values.mean()), quantile(1.0 - alpha, len(values) - 1) * noise / math.sqrt(len(values))
    return mean - reach, mean + reach


def noise_floor(self_test: Sequence[float]) -> float:
    """Noise of base against base in log units; its true mean is zero. One pair that a neighbour hit must not set it."""
    values = np.abs(np.asarray(self_test, np.float64))
    if not len(values):
        return 0.0
    return min(float(np.sqrt(np.mean(values**2))), _NORMAL * float(np.median(values)))


def detectable(noise: float, pairs: int, design: SequentialDesign) -> float:
    """The smallest change (a share) that the test finds with the design's power at this noise and number of pairs."""
    error = noise / math.sqrt(pairs)
    to_see = (quantile(1.0 - design.alpha_per_look, pairs - 1) + quantile(design.power, pairs - 1)) * error
    beyond_margin = math.log1p(design.margin) + quantile(design.power, pairs - 1) * error
    return math.expm1(min(max(to_see, beyond_margin), 50.0))  # e**50: no step is that slow, and exp must not overflow


def further_pairs(effect: float, noise: float, pairs: int, design: SequentialDesign) -> int:
    """How many more pairs would decide if change and noise stay as they are; 0 where no affordable number would."""
    for total in range(pairs + 1, _AFFORDABLE_PAIRS + 1):
        reach = quantile(1.0 - design.alpha_per_look, total - 1) * noise / math.sqrt(total)
        slower = effect - reach > 0 and effect > math.log1p(design.margin)
        within = effect + reach < math.log1p(design.tolerance) and detectable(noise, total, design) <= design.tolerance
        if slower or within:
            return total - pairs
    return 0


def _hopeless(self_test: Sequence[float], floor: float, design: SequentialDesign) -> Look:
    last = design.looks[-1]
    return Look(
        decision="inconclusive",
        change=0.0,
        low=0.0,
        high=0.0,
        noise=math.expm1(floor),
        detectable=detectable(floor, last, design),
        pairs=0,
        further_pairs=further_pairs(0.0, floor, len(self_test), design),
    )
