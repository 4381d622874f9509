"""What fewer threads give back beside loader workers, against a count of the work that two cores have to do."""

from __future__ import annotations

import pytest

from rules.host._shared_cores import SharedCores

BUSY = SharedCores(
    step_us=100.0, alone_us=40.0, workers_us=90.0, split=0.8, waited=None, threads=2, workers=2, cores=2
)  # as a small CNN did beside two workers that decode pictures


def changed(**facts):
    return SharedCores(**{**{name: getattr(BUSY, name) for name in SharedCores.__dataclass_fields__}, **facts})


def test_work_stays_and_waiting_goes():
    # Alone the step takes 40 µs of two threads. Split without a loss, that is 8 of one and 32 of two: 72 µs of work.
    least, most = BUSY.given_back(1)
    assert least == pytest.approx(1 - (72 + 90) / 2 / 100)
    assert most == pytest.approx(1 - (40 + 90) / 2 / 100)


def test_ops_that_are_all_split_take_twice_as_long_with_half_the_threads():
    least, most = changed(alone_us=70.0, workers_us=30.0, split=1.0).given_back(1)
    assert least == pytest.approx(1 - 140 / 100)
    assert most == pytest.approx(1 - 70 / 100)


def test_nothing_is_given_back_that_was_not_waited_for():
    assert changed(waited=0.1).given_back(1)[1] == 0.1


def test_workers_set_the_pace_where_they_need_the_whole_step():
    assert changed(workers_us=198.0, workers=2).given_back(1)[1] < 0
    assert changed(alone_us=10.0, workers_us=99.0, workers=1).given_back(1)[1] == pytest.approx(1 - 99 / 100)


def test_as_many_threads_as_now_only_lose_the_waiting():
    assert changed(workers_us=0.0).given_back(2) == pytest.approx((0.6, 0.6))
