"""Which counter a change is made for, and when it has moved."""

from __future__ import annotations

import pytest

from advisor.capture.inside.treatments.apply import TREATMENTS
from advisor.fixing import edits
from advisor.gate.pairs import Pair
from advisor.model import Counted, Treatment
from advisor.trying import mechanism
from advisor.trying.pairing import Facts, Measured


@pytest.mark.parametrize(
    ("treatment", "counter", "saved_us", "said"),
    [
        (Treatment("loader"), Counted("wait for data", 900.0, 100.0, "us"), 1000.0, "moved"),
        (Treatment("loader"), Counted("wait for data", 900.0, 800.0, "us"), 1000.0, "not moved"),
        (Treatment("loader"), Counted("ops", 900.0, 100.0), 1000.0, "unknown"),
        (Treatment("compile"), Counted("ops", 100.0, 60.0), 0.0, "moved"),
        (Treatment("compile"), Counted("ops", 100.0, 160.0), 0.0, "not moved"),
        (Treatment("autocast"), Counted("ops on bf16 or fp16", 0.0, 60.0), 0.0, "moved"),
        (Treatment("threads", {"count": 1}), Counted("CPU time", 100.0, 60.0, "us"), 10.0, "moved"),
        (Treatment("threads", {"count": 8}), Counted("CPU time", 100.0, 160.0, "us"), 10.0, "moved"),
        (Treatment("threads", {"count": 8}), Counted("CPU time", 100.0, 101.0, "us"), 10.0, "not moved"),
        (Treatment("calls", {"names": ["gc.collect"]}), Counted("garbage collection", 90.0, 1.0, "us"), 99.0, "moved"),
        (Treatment("patch", {"edit": "in_float32"}), Counted("ops on float64", 90.0, 0.0), 99.0, "moved"),
        (Treatment("patch", {}), Counted("ops on float64", 90.0, 0.0), 99.0, "unknown"),
    ],
)
def test_a_counter_moves_or_not(treatment: Treatment, counter: Counted, saved_us: float, said: str) -> None:
    assert mechanism.judge([treatment], [counter], saved_us) == said


def test_counters_are_of_the_work_of_one_step_as_it_is() -> None:
    base = Facts(counts={"samples": 16.0, "ops": 100.0, "syncs": 0.0})
    head = Facts(counts={"samples": 64.0, "ops": 120.0, "syncs": 0.0})
    one = Measured(Pair(0.0, 0.0, 1.0, 1.0, 60, 1), base, head, 1.0)
    assert one.work == 4
    assert mechanism.of_pairs([one]) == (Counted("ops", 100.0, 30.0),)
    assert mechanism.of_pairs([Measured(one.pair, Facts(), head, 1.0)]) == ()


def test_every_counter_has_a_name_and_every_treatment_is_one() -> None:
    named = {*mechanism._OF.values(), *mechanism._OF_CALLS.values()}
    assert {key.removeprefix("+") for keys in named for key in keys} <= set(mechanism.NAMES)
    assert set(mechanism._OF) <= {*TREATMENTS, *edits.NAMES}
