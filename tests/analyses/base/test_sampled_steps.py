"""Which steps of a long window are looked at."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.analyses.base.sampled_steps import MOST_STEPS, in_a_row, spread


@pytest.mark.parametrize("count", [1, 7, MOST_STEPS])
def test_all_steps_of_a_short_window_are_looked_at(count: int) -> None:
    assert spread(count).tolist() == list(range(count))
    assert in_a_row(np.full(count, 5)) == slice(0, count)


@pytest.mark.parametrize("count", [21, 50, 156, 4001])
def test_twenty_steps_of_a_long_window_reach_from_its_start_to_its_end(count: int) -> None:
    chosen = spread(count)
    assert (len(set(chosen.tolist())), chosen[0], chosen[-1]) == (MOST_STEPS, 0, count - 1)
    assert np.ptp(np.diff(chosen)) <= 1


def test_steps_in_a_row_are_as_long_as_all_on_average() -> None:
    # 60 steps of 10, of which the middle ones take 40: neither they nor the first twenty are like all.
    lengths = np.full(60, 10)
    lengths[20:40] = 40
    found = in_a_row(lengths)
    assert found.stop - found.start == MOST_STEPS
    assert lengths[found].mean() == pytest.approx(lengths.mean(), rel=0.08)


def test_equal_steps_are_taken_from_the_middle() -> None:
    assert in_a_row(np.full(60, 7)) == slice(20, 40)
