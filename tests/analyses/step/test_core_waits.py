"""Pauses that are waits for a core, in steps of three ops of 100 µs each with 10 µs of Python around them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.step.core_waits import CoreWaits
from advisor.analyses.step.deprofiled import Deprofiled
from advisor.capture.record import RankRecord, Vitals
from advisor.computed import Computed
from advisor.trace.intervals import total
from advisor.trace.read.load import read_bytes


def known(pauses: list[list[float]], waited: float | None, names: str = "abc") -> Computed:
    """Steps, each with its pauses before, between and after these ops, µs; waited: the share of the window."""
    rows: list[dict[str, Any]] = []
    now = 1000.0
    for number, (first, *others) in enumerate(pauses):
        began, now = now, now + first
        for name, pause in zip(names, others, strict=True):
            rows.append({"cat": "cpu_op", "name": f"aten::{name}", "ts": now, "dur": 100})
            now += 100 + pause
        step = {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": began, "dur": now - began}
        rows.append(step)
    events = [{"ph": "X", "pid": 1, "tid": 1, "args": {}, **row} for row in rows]
    trace = read_bytes(json.dumps({"traceEvents": events}).encode(), "made")
    vitals = Vitals(window_waited=waited)
    return Computed(trace=trace, record=RankRecord(vitals=vitals))


# 5 ms without a core, in each step at another place: 15 ms of 16.02.
ELSEWHERE = [[10, 5010, 10, 10], [10, 10, 5010, 10], [10, 10, 10, 5010]]
WAITED = 15.0 / 16.02


def python_us(pauses: list[list[float]], waited: float | None) -> float:
    return known(pauses, waited).get(Deprofiled).python_us


def test_a_wait_in_each_step_at_another_place_is_no_python() -> None:
    assert python_us(ELSEWHERE, None) == pytest.approx(5010, rel=0.001)
    assert python_us(ELSEWHERE, 0.0) == pytest.approx(5010, rel=0.001)
    assert python_us(ELSEWHERE, WAITED) == 0
    assert total(known(ELSEWHERE, WAITED).get(CoreWaits).spans) == pytest.approx(15e6, rel=0.001)


def test_python_that_each_step_runs_stays_beside_the_wait() -> None:
    """2 ms of it after the first op, and the same waits."""
    steps = [[first, two + 2000, three, four] for first, two, three, four in ELSEWHERE]
    assert python_us(steps, 15.0 / 22.02) == pytest.approx(2010, rel=0.001)


def test_what_the_wait_cannot_explain_stays_in_part() -> None:
    """A third of what is beyond the usual was wait: any of it may be something that one step in three does."""
    assert python_us(ELSEWHERE, WAITED / 3) == pytest.approx(5010 - 5000 / 3, rel=0.001)


def test_two_steps_tell_nothing_of_each_other() -> None:
    assert python_us(ELSEWHERE[:2], 1.0) == pytest.approx(5010, rel=0.001)
