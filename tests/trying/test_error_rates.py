"""How often `advisor try` names a winner where both sides run equal code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from advisor.gate.sequential import noise_floor
from advisor.trying.decide import Design, judge


def heavy(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """Student's t with three degrees of freedom."""
    while True:
        yield float(rng.standard_t(3)) * sigma / math.sqrt(3.0)


def two_values(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    """The worst case for a t test on few pairs."""
    while True:
        yield sigma if rng.random() < 0.5 else -sigma


def gaussian(rng: np.random.Generator, sigma: float) -> Iterator[float]:
    while True:
        yield float(rng.normal(0.0, sigma))


def any_win(draw: Callable[..., Iterator[float]], sigma: float, tests: int, rng: np.random.Generator) -> bool:
    """Whether a session on equal code calls anything faster."""
    noise = draw(rng, sigma)
    floor = noise_floor([next(noise) for _ in range(4)])
    design = Design(tests)
    for _ in range(tests):
        ratios: list[float] = []
        for look in design.looks:
            ratios += [next(noise) for _ in range(look - len(ratios))]
            judged = judge(ratios, design, floor)
            if judged.final:
                break
        if judged.verdict == "faster":
            return True
    return False


@pytest.mark.parametrize("draw", [gaussian, heavy, two_values])
@pytest.mark.parametrize("tests", [1, 6])
def test_few_sessions_on_equal_code_name_a_winner(draw: Callable[..., Iterator[float]], tests: int) -> None:
    """`benchmarks/trying/try_simulation.py` runs more of them; here the rate only has to be far from a wrong one."""
    rng = np.random.default_rng([tests, len(draw.__name__)])
    wins = sum(any_win(draw, 0.05, tests, rng) for _ in range(120))
    assert wins <= 12  # 5 % of 120 are 6; twelve or more have a chance below 2 %
