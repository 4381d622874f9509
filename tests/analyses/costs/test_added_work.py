"""Work that no trace holds: its cost by the machine's calibration, and by the table where there is none."""

from __future__ import annotations

import pytest

from advisor.analyses.costs.added_work import AddedWork
from advisor.calibration.calibration import Calibration
from advisor.capture.record import Measured
from advisor.constants import constant

QUIET = Measured(
    torch="2.14.1",
    threads=1,
    quantities={
        "op_call_us": (1.0, 1.1, 1.2, 60),
        "op_call_cold_us": (1.5, 2.0, 2.5, 9),
        "profiler_row_us": (0.3, 0.4, 0.5, 20),
        "profiler_row_cold_us": (0.6, 0.8, 1.0, 9),
        "core_memory_gbs": (10.0, 12.0, 16.0, 20),
        "core_cache_gbs": (40.0, 50.0, 80.0, 60),
    },
)
CALIBRATED, OF_TABLE = (AddedWork.compute(Calibration.of(one)) for one in (QUIET, None))
CALLS = constant("op_calls.layer_trained")


def test_calls_cost_from_one_in_a_loop_to_one_after_other_work() -> None:
    assert CALIBRATED.calls_us("op_calls.layer_trained") == pytest.approx((CALLS.low * 1.0, CALLS.high * 2.5))
    table = constant("machine.op_call_us")
    assert OF_TABLE.calls_us("op_calls.layer_trained") == pytest.approx(
        (CALLS.low * table.low, CALLS.high * table.high)
    )


def test_while_they_are_recorded_each_call_is_a_row_as_well() -> None:
    assert CALIBRATED.recorded_calls_us("op_calls.layer_trained") == pytest.approx(CALLS.high * (2.5 + 1.0))


def test_copies_read_and_write() -> None:
    # 1 MB is read and 1 MB written: at most in the caches, at least at the slowest rate of memory.
    assert CALIBRATED.copied_us(1e6) == pytest.approx((2e6 / 80e3, 2e6 / 10e3))
    assert CALIBRATED.copied_us(1e8) == pytest.approx((2e8 / 16e3, 2e8 / 10e3))
    assert OF_TABLE.copied_us(1e6) == pytest.approx((2e6 / 20e3, 2e6 / 4e3))
