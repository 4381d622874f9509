"""Which lines of samples and batches are worth a change, and what goes with them at most."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.analyses.costs.line_costs import LineCosts
from advisor.api import Price, Source
from advisor.capture.record import Loader

costly: Any = import_module("advisor.rules.input._costly_lines")
loader: Any = import_module("advisor.rules.input._loader")

LOOP = ("train.py", 50)
SCALE: Any = SimpleNamespace(step_us=10_000.0)


class Deprofiled:
    """The profiler added a microsecond for each row, and nothing else."""

    def in_part(self, name: str, us: float, rows: float = 0.0) -> tuple[float, float]:
        assert name == "fetch"
        return us, rows

    def us(self, work: tuple[float, float]) -> tuple[float, float]:
        return 0.0, work[0] - work[1]


def costs(*lines: tuple[int, float, float, int | None]) -> Any:
    """(line, µs in fetches, ops recorded, the line that called it)"""
    found: list[Any] = [
        SimpleNamespace(
            source=Source("train.py", line, "f"),
            parts={"input": us},
            rows=rows,
            called_from=("train.py", caller) if caller else None,
        )
        for line, us, rows, caller in lines
    ]
    return LineCosts(tuple(found), np.empty(0, np.int64))


def found(lines: Any, fetch_us: float, facts: Loader | None = None) -> dict[int, float]:
    waits = SimpleNamespace(us=fetch_us, asked_at=(Source(*LOOP),))
    known = costly.costly_lines(lines, waits, facts, Deprofiled(), SCALE)
    return {at.line: us for at, us in zip(known.sources, known.us, strict=True)} if known else {}


def test_lines_of_a_tenth_of_the_step_are_named_with_their_time_unrecorded() -> None:
    lines = costs((24, 2_000.0, 100.0, 50), (25, 3_000.0, 0.0, 50), (26, 900.0, 0.0, 50), (50, 100.0, 0.0, None))
    assert found(lines, 6_000.0) == pytest.approx({25: 3_000.0, 24: 1_900.0})


def test_the_line_that_asks_for_a_batch_is_the_loaders_own_work() -> None:
    assert found(costs((50, 4_000.0, 0.0, None)), 4_000.0) == {}
    # Called from main(), whose line is known as well.
    assert found(costs((50, 4_000.0, 0.0, 60), (60, 1.0, 0.0, None)), 4_000.0) == {}


def test_lines_of_a_function_count_for_the_line_that_calls_it_where_none_is_material_alone() -> None:
    lines = costs((24, 100.0, 0.0, 50), (31, 700.0, 0.0, 24), (32, 800.0, 0.0, 24), (50, 0.1, 0.0, None))
    assert found(lines, 1_600.1) == pytest.approx({24: 1_600.0})


def test_a_material_line_of_a_function_is_named_and_its_caller_is_not() -> None:
    lines = costs((24, 100.0, 0.0, 50), (31, 1_700.0, 0.0, 24), (32, 800.0, 0.0, 24), (50, 0.1, 0.0, None))
    assert found(lines, 2_600.1) == pytest.approx({31: 1_700.0})


def test_of_what_a_line_calls_the_costliest_line_is_named_too() -> None:
    lines = costs((24, 100.0, 0.0, 50), (31, 700.0, 0.0, 24), (32, 800.0, 0.0, 24), (50, 0.1, 0.0, None))
    waits = SimpleNamespace(us=1_600.1, where=Source(*LOOP), asked_at=(Source(*LOOP),))
    known = costly.costly_lines(lines, waits, None, Deprofiled(), SCALE)
    assert [at.line for at in loader.where_of(lines, waits, 0, Deprofiled(), known)] == [24, 32, 50]
    alone = costs((25, 3_000.0, 0.0, 50), (31, 100.0, 0.0, 25), (50, 0.1, 0.0, None))
    assert costly.costly_lines(alone, waits, None, Deprofiled(), SCALE).below == ()


def test_a_recursion_ends() -> None:
    lines = costs((24, 600.0, 0.0, 25), (25, 700.0, 0.0, 24), (50, 0.1, 0.0, None))
    assert sum(found(lines, 1_300.1).values()) <= 1_300.1


def test_what_no_line_is_known_for_is_shared_out_and_little_knowledge_is_none() -> None:
    lines = costs((25, 3_000.0, 0.0, 50))
    assert found(lines, 4_500.0) == pytest.approx({25: 4_500.0})
    assert found(lines, 6_500.0) == {}
    assert found(None, 6_500.0) == {}


def test_lines_of_the_sampler_are_another_findings() -> None:
    facts = Loader(sampler_file="train.py", sampler_lines=[[20, 26]])
    lines = costs((25, 3_000.0, 0.0, 50), (30, 2_000.0, 0.0, 50))
    assert set(found(lines, 5_000.0, facts)) == {30}


def test_the_promise_is_at_most_what_the_lines_take_and_what_they_push_out_of_the_caches() -> None:
    known = costly.CostlyLines((Source("a/train.py", 25), Source("a/train.py", 26)), (3_000.0, 2_000.0), 6_000.0)
    saving = known.saving(Price(None, None, SCALE, None, None, None))  # type: ignore[arg-type]
    assert saving.low_us == 0.0
    assert 5_000.0 <= saving.high_us <= 5_000.0 + 0.2 * 5_000.0
    assert known.said == ", up to 3 ms at train.py:25 and 2 ms at train.py:26"


def test_lines_take_no_more_than_the_batch_whose_lines_they_are() -> None:
    known = costly.CostlyLines((Source("train.py", 25), Source("train.py", 26)), (3_000.0, 1_000.0), 5_000.0)
    assert known.within(2_000.0).us == pytest.approx((1_500.0, 500.0))
    assert known.within(2_000.0).fetch_us == pytest.approx(2_500.0)
    assert known.within(4_500.0).us == known.us


def test_costly_lines_stand_first_and_once() -> None:
    known = costly.CostlyLines((Source("train.py", 25, "f"), Source("train.py", 26, "f")), (3_000.0, 2_000.0), 6_000.0)
    waits = SimpleNamespace(where=Source(*LOOP), asked_at=(Source(*LOOP),))
    lines = costs((25, 3_000.0, 0.0, 50), (26, 2_000.0, 0.0, 50))
    assert [at.line for at in loader.where_of(lines, waits, 0, Deprofiled(), known)] == [25, 26, 50]
    same = SimpleNamespace(where=Source("train.py", 25, "<listcomp>"), asked_at=())
    assert [at.line for at in loader.where_of(lines, same, 0, Deprofiled(), known)] == [25, 26]
