"""Quantiles of Student's t distribution, from the incomplete beta function; scipy would be 100 MB for one number."""

from __future__ import annotations

import functools
import math

# Lentz's continued fraction gains about a digit per round here; 300 rounds are far beyond any degree of freedom we use.
_ROUNDS = 300
_TINY = 1e-300
_CLOSE = 1e-15


@functools.cache
def quantile(probability: float, freedom: int) -> float:
    """The value that a t variable stays below with `probability`. Raises ValueError outside (0, 1)."""
    if not 0.0 < probability < 1.0 or freedom < 1:
        raise ValueError(f"no quantile at {probability} with {freedom} degrees of freedom")
    if probability < 0.5:
        return -quantile(1.0 - probability, freedom)
    low, high = 0.0, 1.0
    while distribution(high, freedom) < probability:
        high *= 2.0
    for _ in range(200):  # halving to the last bit of a double
        middle = (low + high) / 2.0
        if distribution(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def distribution(value: float, freedom: int) -> float:
    """Probability that a t variable with `freedom` degrees is below `value`."""
    tail = 0.5 * _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + value * value))
    return 1.0 - tail if value >= 0 else tail


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # The fraction converges fast on one side of the mean; the symmetry of the function gives the other.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    result = d
    for m in range(1, _ROUNDS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            result *= c * d
        if abs(c * d - 1.0) < _CLOSE:
            break
    return result


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
