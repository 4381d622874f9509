"""How far the step time repeats, and what that does to a promise."""

import random
import statistics

import pytest

from advisor.analyses.base import repeats
from advisor.model import Finding, Joint, Outcome, Saving


def steps(deviation: float, count: int = 400, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [1_000 * draw.lognormvariate(0, deviation) for _ in range(count)]


def test_steady_steps_repeat_exactly() -> None:
    assert repeats.repeatability([1_000.0] * 40) == 0.0


def test_it_is_the_deviation_of_the_medians_of_blocks_of_five() -> None:
    drawn = steps(0.02)
    medians = [statistics.median(drawn[i : i + 5]) for i in range(0, 400, 5)]
    expected = statistics.stdev(medians) / statistics.mean(medians)
    assert repeats.repeatability(drawn) == pytest.approx(expected, rel=0.02)


def test_steps_of_different_work_are_no_noise_beyond_three_percent() -> None:
    assert repeats.repeatability(steps(0.5)) == 0.07


@pytest.mark.parametrize("times", [[], [1_000.0] * 19, [0.0] * 40])
def test_few_steps_tell_nothing(times: list[float]) -> None:
    assert repeats.repeatability(times) is None


def test_one_burst_of_other_work_is_not_seen() -> None:
    times = [1_000.0] * 40
    times[17] = 90_000.0
    assert repeats.repeatability(times) == 0.0


def test_either_end_lies_farther_out() -> None:
    wide = repeats.widened(Saving(300.0, 400.0, "modelled", "why"), 1_000.0, 0.02)
    assert (wide.low_us, wide.high_us, wide.basis, wide.how) == (280.0, 420.0, "modelled", "why")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (10.0, 15.0, (0.0, 30.0)),  # small stays small: at most doubled
        (950.0, 990.0, (920.0, 1_000.0)),  # never more than the step
        (0.0, 0.0, (0.0, 0.0)),  # nothing promised stays nothing
    ],
)
def test_the_ends_stay_sensible(low: float, high: float, expected: tuple[float, float]) -> None:
    wide = repeats.widened(Saving(low, high, "modelled", ""), 1_000.0, 0.03)
    assert (wide.low_us, wide.high_us) == expected


@pytest.mark.parametrize("unknown", [None, 0.0])
def test_nothing_changes_where_nothing_is_known(unknown: float | None) -> None:
    saving = Saving(300.0, 400.0, "replayed", "")
    assert repeats.widened(saving, 1_000.0, unknown) is saving


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_that_share_of_the_step_is_the_error_of_a_saving_that_is_known_exactly(share: float) -> None:
    """Each process has a pace of its own: that of the profile, and those in which the saving is measured."""
    draw, deviation, errors = random.Random(5), 0.02, []
    for _ in range(4_000):
        profiled, before, after = (draw.lognormvariate(0, deviation) for _ in range(3))
        promised = share * profiled
        measured = 1 - (1 - share) * after / before
        errors.append(measured - promised)
    assert 0.75 * deviation < statistics.pstdev(errors) < 1.45 * deviation


def test_findings_and_their_sum_are_widened_alike() -> None:
    saving = Saving(300.0, 400.0, "modelled", "")
    outcome = Outcome("some-rule", "found", findings=(Finding("slow", saving=saving), Finding("no number")))
    found = repeats.of_outcome(outcome, 1_000.0, 0.02).findings
    assert found[0].saving == repeats.widened(saving, 1_000.0, 0.02)
    assert found[1].saving is None
    joint = repeats.of_joint(Joint(300.0, 400.0, 650.0, "modelled"), 1_000.0, 0.02)
    assert joint == Joint(280.0, 420.0, 650.0, "modelled")
    assert repeats.of_joint(None, 1_000.0, 0.02) is None
