"""What fewer threads give back beside loader workers, against a count of the work that two cores have to do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from advisor.rules.host.threads._shared_cores import SharedCores

# A small network whose two threads wait half of the time, beside two workers that take nine tenths of a core.
BUSY = SharedCores(
    step_us=100.0,
    fast_us=60.0,
    loop_us=50.0,
    missed_us=20.0,
    waited_us=100.0,
    workers_us=90.0,
    split=0.8,
    threads=2,
    workers=2,
    cores=2,
)


def test_work_stays_and_spinning_goes():
    # At most 50 us of the loop's thread are work, at least 30; four fifths of that have twice as much for one thread.
    least, most = BUSY.given_back(1)
    assert least == pytest.approx(1 - (50 * 1.8 + 90) / 2 / 100)
    assert most == pytest.approx(1 - (30 * 1.8 + 90) / 2 / 100)


def test_ops_that_are_all_split_take_twice_as_long_with_half_the_threads():
    least, most = replace(BUSY, loop_us=90.0, fast_us=80.0, missed_us=5.0, workers_us=30.0, split=1.0).given_back(1)
    assert least == pytest.approx(1 - 160 / 100)
    assert most == pytest.approx(1 - 160 / 100)


def test_nothing_is_given_back_that_was_not_waited_for():
    assert replace(BUSY, waited_us=10.0).given_back(1)[1] == pytest.approx(0.1)


def test_workers_set_the_pace_where_they_need_the_whole_step():
    assert replace(BUSY, workers_us=198.0).given_back(1)[1] < 0
    assert replace(BUSY, loop_us=10.0, missed_us=0.0, workers_us=99.0, workers=1).given_back(1)[1] == pytest.approx(
        0.01
    )


def test_a_fast_step_is_at_most_what_a_step_needs_alone():
    assert replace(BUSY, fast_us=30.0).given_back(1)[0] == pytest.approx(BUSY.given_back(1)[1])
