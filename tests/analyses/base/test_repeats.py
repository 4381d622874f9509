"""How far the step time repeats, and what that does to a promise."""

import random
import statistics

import pytest

from advisor.analyses.base import repeats as repeated
from advisor.model import Saving


def steps(deviation: float, count: int = 400, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [1_000 * draw.lognormvariate(0, deviation) for _ in range(count)]


def test_steady_steps_repeat_exactly() -> None:
    assert repeated.repeatability([1_000.0] * 40) == 0.0


def test_it_is_the_deviation_of_the_medians_of_blocks_of_five() -> None:
    drawn = steps(0.02)
    medians = [statistics.median(drawn[i : i + 5]) for i in range(0, 400, 5)]
    expected = statistics.stdev(medians) / statistics.mean(medians)
    assert repeated.repeatability(drawn) == pytest.approx(expected, rel=0.02)


def test_steps_of_different_work_are_no_noise_beyond_three_percent() -> None:
    assert repeated.repeatability(steps(0.5)) == 0.07


@pytest.mark.parametrize("times", [[], [1_000.0] * 19, [0.0] * 40])
def test_few_steps_tell_nothing(times: list[float]) -> None:
    assert repeated.repeatability(times) is None


def test_one_burst_of_other_work_is_not_seen() -> None:
    times = [1_000.0] * 40
    times[17] = 90_000.0
    assert repeated.repeatability(times) == 0.0


OFF = 0.02 * (1 + 1 / 4) ** 0.5  # of five profiled steps and of twenty timed ones


def test_either_end_lies_farther_out_by_a_share_of_itself() -> None:
    wide = repeated.widened(Saving(300.0, 400.0, "modelled", "why"), 1_000.0, 0.02)
    assert (wide.low_us, wide.high_us) == pytest.approx((300 * (1 - OFF), 400 * (1 + OFF)))
    assert (wide.basis, wide.how) == ("modelled", "why")
    assert wide.width_us["steps"] == pytest.approx(700 * OFF)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 60.0, (0.0, 60 * (1 + OFF))),  # what may be nothing stays so
        (950.0, 990.0, (950 * (1 - OFF), 1_000.0)),  # never more than the step
        (0.0, 0.0, (0.0, 0.0)),  # nothing promised stays nothing
    ],
)
def test_the_ends_stay_sensible(low: float, high: float, expected: tuple[float, float]) -> None:
    wide = repeated.widened(Saving(low, high, "modelled", ""), 1_000.0, 0.02)
    assert (wide.low_us, wide.high_us) == pytest.approx(expected)


@pytest.mark.parametrize("unknown", [None, 0.0])
def test_nothing_changes_where_nothing_is_known(unknown: float | None) -> None:
    saving = Saving(300.0, 400.0, "replayed", "")
    assert repeated.widened(saving, 1_000.0, unknown) is saving


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_that_is_the_error_of_a_share_of_steps_that_vary(share: float) -> None:
    """The time of the fault is the mean of five steps, that of the step the median of twenty others."""
    draw, deviation, errors, blocks = random.Random(5), 0.04, [], []
    for _ in range(4_000):
        profiled, timed = steps(deviation, 5, draw.randrange(10**6)), steps(deviation, 20, draw.randrange(10**6))
        blocks.append(statistics.median(profiled))
        errors.append(share * statistics.median(profiled) / statistics.median(timed))
    block = statistics.stdev(blocks) / 1_000
    assert statistics.stdev(errors) == pytest.approx(share * block * (1 + 1 / 4) ** 0.5, rel=0.1)
