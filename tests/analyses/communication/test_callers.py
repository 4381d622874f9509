"""Latency and bandwidth of collectives: found again in times that are made of them, with waiting added."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.analyses.communication.callers import fitted


@pytest.mark.parametrize("waits", [0.0, 0.2])
def test_latency_and_bandwidth_are_found_again(waits: float) -> None:
    random = np.random.default_rng(3)
    sizes = random.choice([4.0, 4e4, 4e6], 90)
    took = 80.0 + sizes / 2000.0
    # A fifth of them wait for a rank that is late.
    took[random.random(90) < waits] += 5_000.0
    found = fitted(sizes, took)
    assert found.per_byte_us == pytest.approx(1 / 2000, rel=0.05)
    assert found.latency_us[0] == pytest.approx(80, rel=0.1)
    assert found.latency_us[1] >= found.latency_us[0]
    assert found.n == 90


def test_of_one_size_nothing_tells_latency_from_transfer() -> None:
    found = fitted(np.full(20, 1e6), np.linspace(900, 1100, 20))
    assert found.per_byte_us is None
    assert found.latency_us[0] == 0
    assert 900 <= found.latency_us[1] <= 1000


def test_sizes_that_are_not_known_are_left_out() -> None:
    assert fitted(np.array([np.nan, np.nan]), np.array([1.0, 2.0])).n == 0
    assert fitted(np.array([np.nan, 4.0]), np.array([1.0, 2.0])).n == 1
