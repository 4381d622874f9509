"""Ranges as wide as predictions were off when they were checked."""

import math

import pytest

from advisor.analyses.base.repeats import widened
from advisor.analyses.costs import checked_ranges as ranges
from advisor.model import Finding, Joint, Outcome, Saving

STEP = 1_000.0


def odds(us: float) -> float:
    return us / (STEP - us)


@pytest.mark.parametrize("middle", [30.0, 300.0, 900.0])
def test_the_odds_of_a_certain_change_are_off_by_a_factor_either_way(middle: float) -> None:
    found = ranges.settled(Saving(middle, middle, "replayed", "why"), STEP, None, checked=True)
    assert odds(found.high_us) / odds(middle) == pytest.approx(1.1 * 1.46)
    assert odds(middle) / odds(found.low_us) == pytest.approx(1.46 / 1.1)
    assert found.width_us == pytest.approx({"predictions": found.high_us - found.low_us})


def test_what_a_change_leaves_open_adds_in_quadrature() -> None:
    """300 +- 150 µs: half the width is half of the middle, which counts two and a half times."""
    found = ranges.settled(Saving(150.0, 450.0, "modelled", "", {"instead": 100.0}), STEP, 0.05, checked=True)
    far = math.log(1.46) * math.sqrt(1 + 1.25**2)
    assert math.log(odds(found.high_us) / odds(300.0)) == pytest.approx(math.log(1.1) + far)
    width, left = found.high_us - found.low_us, 1.25**2 / (1 + 1.25**2)
    assert found.width_us == pytest.approx({"predictions": width * (1 - left), "instead": width * left / 3})


def test_a_wide_range_becomes_narrower_and_a_narrow_one_wider() -> None:
    wide, narrow = Saving(60.0, 740.0, "modelled", ""), Saving(250.0, 260.0, "measured", "")
    assert ranges.settled(wide, STEP, None, checked=True).low_us > wide.low_us
    assert ranges.settled(wide, STEP, None, checked=True).high_us < wide.high_us
    assert ranges.settled(narrow, STEP, None, checked=True).low_us < narrow.low_us
    assert ranges.settled(narrow, STEP, None, checked=True).high_us > narrow.high_us


@pytest.mark.parametrize(
    ("saving", "checked"),
    [
        (Saving(0.0, 600.0, "modelled", ""), True),  # nothing is certain
        (Saving(0.0, 0.0, "modelled", ""), True),
        (Saving(300.0, 400.0, "modelled", ""), False),  # on a device nothing was checked
    ],
)
def test_bounds_and_what_was_never_checked_are_as_wide_as_steps_differ(saving: Saving, checked: bool) -> None:
    assert ranges.settled(saving, STEP, 0.02, checked) == widened(saving, STEP, 0.02)


def test_all_of_the_step_is_still_less_than_the_step() -> None:
    found = ranges.settled(Saving(STEP, STEP, "modelled", ""), STEP, None, checked=True)
    assert 0.98 * STEP < found.low_us < found.high_us < STEP


def test_a_saving_of_the_run_is_a_part_of_the_run() -> None:
    saving = Saving(300.0, 400.0, "modelled", "")
    findings = (Finding("slow", saving=saving), Finding("no number"), Finding("evaluations", saving=saving, run_us=5e3))
    found = ranges.of_outcome(Outcome("some-rule", "found", findings=findings), STEP, None, checked=True).findings
    assert found[0].saving == ranges.settled(saving, STEP, None, checked=True)
    assert found[1].saving is None
    assert found[2].saving == ranges.settled(saving, 5e3, None, checked=True)


def test_the_sum_is_as_wide_as_each() -> None:
    joint = ranges.of_joint(Joint(300.0, 400.0, 650.0, "modelled"), STEP, None, checked=True)
    alone = ranges.settled(Saving(300.0, 400.0, "modelled", ""), STEP, None, checked=True)
    assert joint is not None
    assert (joint.low_us, joint.high_us) == pytest.approx((alone.low_us, alone.high_us))
    assert joint.step_us_after == pytest.approx(STEP - (alone.low_us + alone.high_us) / 2)
    assert ranges.of_joint(None, STEP, None, checked=True) is None
