"""What the loop waits for cores that workers have, and which line of a dataset takes the time unrecorded."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.analyses.costs.line_costs import LineCosts
from advisor.api import RankRecord, Saving, Source
from advisor.capture.record import Loader, Vitals

workers: Any = import_module("advisor.rules.input._workers")
loader: Any = import_module("advisor.rules.input._loader")


def record(timed_us: float | None, queued_us: float | None) -> RankRecord:
    return RankRecord(rank=0, vitals=Vitals(timed_us=timed_us, loop_queued_us=queued_us))


@pytest.mark.parametrize(
    ("timed_us", "queued_us", "expected"),
    [(1e6, 2.5e5, 2_000.0), (1e6, 2e6, 8_000.0), (1e6, 0.0, 0.0), (None, None, 0.0), (1e6, None, 0.0)],
)
def test_the_share_of_the_time_without_a_core(timed_us: float | None, queued_us: float | None, expected: float) -> None:
    assert workers.without_core_us(record(timed_us, queued_us), 8_000.0) == pytest.approx(expected)


def test_nobody_looked() -> None:
    assert workers.without_core_us(None, 8_000.0) == 0.0
    assert workers.without_core_us(RankRecord(rank=0), 8_000.0) == 0.0


def test_waits_for_cores_add_to_the_high_end_alone_and_never_past_the_step() -> None:
    scale: Any = SimpleNamespace(step_us=8_000.0)
    modelled = Saving(100.0, 3_000.0, "modelled", "as it is")
    found = workers.with_cores(modelled, record(1e6, 2.5e5), scale)
    assert (found.low_us, found.high_us) == (100.0, 5_000.0)
    assert workers.with_cores(modelled, record(1e6, 9e5), scale).high_us == 8_000.0
    assert workers.with_cores(modelled, record(1e6, 0.0), scale) is modelled


def costs(*lines: tuple[int, float, float]) -> Any:
    """(line, µs in fetches, ops recorded)"""
    found: list[Any] = [
        SimpleNamespace(source=Source("train.py", line, "f"), called_from=None, parts={"input": us}, rows=rows)
        for line, us, rows in lines
    ]
    return LineCosts(tuple(found), np.empty(0, np.int64))


@pytest.mark.parametrize(
    ("row_us", "expected"),
    [
        (0.0, 46),  # nothing was added: the longest line it is
        (0.8, 40),  # 600 ops that took 480 µs to record
    ],
)
def test_a_line_of_many_small_ops_is_as_long_as_it_is_without_the_profiler(row_us: float, expected: int) -> None:
    deprofiled: Any = SimpleNamespace(parts=[SimpleNamespace(name="fetch", row_us=row_us)])
    waits: Any = SimpleNamespace(where=Source("train.py", 71, "train"), asked_at=())
    recorded = costs((46, 1_050.0, 600.0), (40, 960.0, 0.0), (39, 850.0, 0.0))
    found = loader.where_of(recorded, waits, 0, deprofiled)
    assert [one.line for one in found] == [expected, 71]
    # With workers the dataset's lines run elsewhere: only the loop's own is known.
    assert [one.line for one in loader.where_of(recorded, waits, 2, deprofiled)] == [71]


@pytest.mark.parametrize(("drawn", "risk"), [(True, "draws"), (False, "exact"), (None, "exact")])
def test_other_workers_draw_other_random_numbers(drawn: bool | None, risk: str) -> None:
    """Samples that are augmented come out as with another seed; others are the same in any process."""
    fix = loader.keep_workers(Loader(num_workers=2, persistent_workers=False, random_samples=drawn), 2)
    assert fix.risk == risk
