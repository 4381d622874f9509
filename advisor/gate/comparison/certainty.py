"""How sure the difference of two runs' step times is.

Steps of one run follow each other, so they are no independent samples: medians of blocks of five are taken (of fewer
than 15 steps, the steps themselves), and Welch's interval of the difference of their logarithms. What two runs of one
script differ by is not in either of them; it is added from a table (`runs.repeat` in constants.toml). Only
`advisor gate --base`, which measures pairs, is surer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from advisor.constants import runs_deviation
from advisor.gate.comparison.model import Change, Compared
from advisor.gate.student import quantile

_BLOCK = 5
# Two values have a spread at all, but a t quantile of one degree of freedom is 12.7.
_LEAST = 3
_SIDE = 0.025  # of both ends: a 95 % interval


def change_of(a: Compared, b: Compared) -> Change:
    """Step time of `b` against `a`."""
    if not a.step_us or not b.step_us:
        lacking = " and ".join(name for name, side in (("A", a), ("B", b)) if not side.step_us)
        return Change("not known", f"the step time of {lacking} was not recorded")
    share = b.step_us / a.step_us - 1.0
    if a.profiled != b.profiled:
        which = "A" if a.profiled else "B"
        return Change("not known", f"only profiled steps of {which} were recorded, and the profiler adds time", share)
    first, second = _blocks(a.series_us), _blocks(b.series_us)
    short = [name for name, blocks in (("A", first), ("B", second)) if len(blocks) < _LEAST]
    if short:
        return Change("not known", f"fewer than {_LEAST} step times of {' and '.join(short)} were recorded", share)
    low, high = _interval(first, second, math.log1p(share))
    if low > 0:
        return Change("slower", "the whole 95 % interval is above zero", share, low, high)
    if high < 0:
        return Change("faster", "the whole 95 % interval is below zero", share, low, high)
    why = "the 95 % interval contains zero; `advisor gate --base` measures pairs and finds smaller changes"
    return Change("within the noise", why, share, low, high)


def _blocks(series: Sequence[float]) -> list[float]:
    """Logarithms of the medians of blocks of consecutive steps; a last block that is not whole is left out."""
    values = [value for value in series if math.isfinite(value) and value > 0]
    size = _BLOCK if len(values) >= _BLOCK * _LEAST else 1
    cut = (values[at : at + size] for at in range(0, len(values) - size + 1, size))
    return [math.log(statistics.median(block)) for block in cut]


def _interval(first: Sequence[float], second: Sequence[float], change: float) -> tuple[float, float]:
    """Ends of the interval around `change`, a logarithm, as shares.

    Two runs of one script differ by a normal variable whose median absolute value is `runs.repeat`.
    """
    within = [statistics.variance(one) / len(one) for one in (first, second)]
    between = runs_deviation()
    total = sum(within) + between**2
    # Welch and Satterthwaite; the part from the table is of so many scripts that it adds no uncertainty of its own.
    weight = sum(part**2 / (len(one) - 1) for part, one in zip(within, (first, second), strict=True))
    freedom = min(int(total**2 / weight), _MOST_FREEDOM) if weight > 0 else _MOST_FREEDOM
    half = quantile(1.0 - _SIDE, max(freedom, 1)) * math.sqrt(total)
    return math.expm1(change - half), math.expm1(change + half)


# Beyond this many degrees of freedom the quantile no longer changes in its third digit.
_MOST_FREEDOM = 1000
