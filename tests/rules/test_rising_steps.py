"""Steps that rise because a part of them does: what that part takes at the end of the run."""

import json

import pytest

from advisor.capture.record import RankRecord, StepTimes
from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.rules.shared._rising_steps import end_of_rise, grown_in_rounds
from advisor.trace.read.load import read_bytes

RISING_US = [2000.0 + 10.0 * k for k in range(160)]


def run(times_us):
    return RankRecord(steps=StepTimes(unprofiled_us=list(times_us), timed_before=20))


def test_a_part_that_rises_with_the_steps_goes_on_to_their_end():
    # The last eighth of 160 steps is the last twenty: its median lies in the middle of them.
    assert end_of_rise([100.0 + k for k in range(12)], run(RISING_US)) == pytest.approx(2000 + 10 * 149.5)


@pytest.mark.parametrize(
    ("part_us", "times_us"),
    [
        ([100.0 + 10 * (k % 3) for k in range(12)], RISING_US),  # something else rises
        ([200.0 - k for k in range(12)], RISING_US),
        ([100.0 + k for k in range(12)], [2000.0] * 160),  # the steps do not
        ([100.0 + k for k in range(9)], RISING_US),  # too few to tell
    ],
)
def test_a_part_that_does_not_is_what_the_window_saw(part_us, times_us):
    assert end_of_rise(part_us, run(times_us)) is None


def test_growth_that_begins_anew_is_told_by_the_shortest_steps():
    epochs = [2000.0 + 50.0 * (step % 50) for step in range(200)]
    mean, longest = grown_in_rounds(epochs)
    # Of each epoch's 2,000 to 4,450 µs the first five steps last 2,100 in their middle, the last five 4,350.
    assert mean == pytest.approx(1 - 2100 / (sum(epochs) / 200))
    assert longest == pytest.approx(1 - 2100 / 4350)


@pytest.mark.parametrize(
    "times_us",
    [
        [2000.0 + 50.0 * (step % 50) for step in range(60)],  # too few
        [2000.0 + 400.0 * (step // 5 % 2) for step in range(200)],  # now long, now short
        [4450.0 - 50.0 * (step % 50) for step in range(200)],
        [2000.0] * 200,
    ],
)
def test_times_that_do_not_mostly_rise_tell_no_growth(times_us):
    assert grown_in_rounds(times_us) is None


def profiled(python_us):
    """Steps of 2 ms, of which so much is one stretch of Python in line 31 of the script; the rest is ops."""
    rows, start = [], 0.0
    for number, us in enumerate(python_us):
        mine = [("ProfilerStep#" + str(number), "user_annotation", start, 2000.0)]
        mine += [("train.py(31): save", "python_function", start, us), ("aten::mm", "cpu_op", start + us, 1990 - us)]
        rows += [
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}}
            for name, cat, ts, dur in mine
        ]
        start += 2001.0
    return read_bytes(json.dumps({"traceEvents": rows}).encode(), "made")


def finding(python_us, times_us):
    known = Computed(trace=profiled(python_us), record=run(times_us))
    (found,) = apply(load_rules().by_id()["host-work"], known, {}).findings
    return found


def test_python_that_grows_is_promised_up_to_what_it_is_at_the_end_of_the_run():
    calm, grows = (finding(us, RISING_US) for us in ([555.0] * 12, [500.0 + 10 * k for k in range(12)]))
    assert "grows with every step" in grows.message
    assert "grows with every step" not in calm.message
    assert grows.saving.low_us == pytest.approx(calm.saving.low_us, rel=0.02)
    # What is left of the step when the Python is gone stays; the step at the end is 3,495 µs.
    step_us = 2000 + 10 * 9.5  # the median of the twenty before the window
    left_us = step_us - calm.saving.high_us
    assert grows.saving.high_us / step_us == pytest.approx(1 - left_us / 3495, rel=0.02)
