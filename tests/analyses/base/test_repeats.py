"""How far the step time repeats, and what that does to a promise."""

import random
import statistics

import pytest

from advisor.analyses.base import repeats as repeated
from advisor.constants import constant
from advisor.model import Finding, Joint, Outcome, Saving


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


def test_either_end_lies_farther_out() -> None:
    wide = repeated.widened(Saving(300.0, 400.0, "modelled", "why"), 1_000.0, 0.02)
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
    wide = repeated.widened(Saving(low, high, "modelled", ""), 1_000.0, 0.03)
    assert (wide.low_us, wide.high_us) == expected


@pytest.mark.parametrize(
    ("low", "high", "repeats", "expected"),
    [
        (300.0, 400.0, 0.0, (280.0, 420.0)),  # steps of this run are alike: other runs differ all the same
        (300.0, 400.0, None, (280.0, 420.0)),
        (300.0, 400.0, 0.01, (280.0, 420.0)),
        (300.0, 400.0, 0.05, (250.0, 450.0)),  # steps of this run differ more than runs do
        (30.0, 60.0, 0.0, (15.0, 80.0)),  # what is certain in this run stays so
        (30.0, 60.0, 0.03, (0.0, 90.0)),
        (0.0, 60.0, 0.0, (0.0, 80.0)),
    ],
)
def test_runs_differ_even_if_the_steps_of_one_are_alike(
    low: float, high: float, repeats: float | None, expected: tuple[float, float]
) -> None:
    wide = repeated.widened(Saving(low, high, "modelled", ""), 1_000.0, repeats, between=0.02)
    assert (wide.low_us, wide.high_us) == pytest.approx(expected)


def test_two_runs_in_four_differ_by_no_more_than_the_table_says() -> None:
    draw, between = random.Random(7), repeated.between_runs(timed=True, on_device=False)
    pairs = [(draw.gauss(0, between), draw.gauss(0, between)) for _ in range(20_000)]
    assert statistics.median(abs(a - b) for a, b in pairs) == pytest.approx(constant("runs.repeat").value, rel=0.03)


def test_other_runs_are_not_known_for_a_device_nor_without_timed_steps() -> None:
    assert repeated.between_runs(timed=True, on_device=True) == 0.0
    assert repeated.between_runs(timed=False, on_device=False) == 0.0


@pytest.mark.parametrize("unknown", [None, 0.0])
def test_nothing_changes_where_nothing_is_known(unknown: float | None) -> None:
    saving = Saving(300.0, 400.0, "replayed", "")
    assert repeated.widened(saving, 1_000.0, unknown) is saving


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
    found = repeated.of_outcome(outcome, 1_000.0, 0.02).findings
    assert found[0].saving == repeated.widened(saving, 1_000.0, 0.02)
    assert found[1].saving is None
    joint = repeated.of_joint(Joint(300.0, 400.0, 650.0, "modelled"), 1_000.0, 0.02)
    assert joint == Joint(280.0, 420.0, 650.0, "modelled")
    assert repeated.of_joint(None, 1_000.0, 0.02) is None
