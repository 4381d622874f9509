"""Work that comes every few steps, told from the times of un-profiled steps."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

rhythm = importlib.import_module("advisor.rules.run._rhythm").rhythm


def test_one_step_in_five_is_longer() -> None:
    """A fifth of the steps takes 5 ms more than the others' 2 ms: a third of all time."""
    found = rhythm([2e3, 2e3, 2e3, 2e3, 7e3] * 8, 5)
    assert found is not None
    assert (found.longer_us, found.mean_us) == (5e3, 3e3)
    assert found.low == pytest.approx(1 / 3) == found.high


def test_steps_after_the_long_one_widen_the_range() -> None:
    """What the long step leaves behind is no part of it, yet goes with it."""
    found = rhythm([2e3, 2e3, 2e3, 7e3, 3e3] * 8, 5)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(5 / 16), pytest.approx(1 - 2 / 3.2))


@pytest.mark.parametrize("every", [1, 3, 4, 7])
def test_another_period_is_none(every: int) -> None:
    assert rhythm([2e3, 2e3, 2e3, 2e3, 7e3] * 12, every) is None


def test_few_turns_and_noise_are_no_rhythm() -> None:
    assert rhythm([2e3, 2e3, 7e3] * 5, 3) is None
    noise = np.random.default_rng(0).uniform(1e3, 5e3, 300).tolist()
    assert not any(rhythm(noise, every) for every in range(2, 20))
