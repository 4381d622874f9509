"""Places beside a finding's own line."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from advisor.capture.record import CodePlace, Loader, MadeClass, Optimizer, RankRecord, Settings
from advisor.model import Source
from advisor.rules.shared._places import asked_at, object_of, restarts_at, set_at, workers_at

callers: Any = import_module("advisor.rules.distributed._callers")
RECORD = RankRecord(classes={"pace.py": [MadeClass(1, 30, "train.py", 81), MadeClass(10, 14, "train.py", 90)]})


def test_the_object_of_the_innermost_class_around_a_line():
    assert object_of(Source("pace.py", 20, "pause"), RECORD) == (Source("train.py", 81),)
    assert object_of(Source("pace.py", 12, "pause"), RECORD) == (Source("train.py", 90),)


def test_a_line_of_no_class_and_a_run_without_classes():
    assert object_of(Source("pace.py", 40, "pause"), RECORD) == ()
    assert object_of(Source("train.py", 20, "main"), RECORD) == ()
    assert object_of(Source("pace.py", 20, "pause"), RankRecord()) == ()
    assert object_of(None, RECORD) == ()


def at(line: int) -> CodePlace:
    return CodePlace("train.py", line)


def numbers(places: tuple[Source, ...]) -> list[int]:
    return [one.line for one in places]


def test_the_value_of_a_setting_comes_before_the_call_that_takes_it():
    known = Settings(set_at={"threads": at(40), "threads value": at(7), "deterministic": at(41)})
    assert numbers(set_at(known, "threads", "OMP_NUM_THREADS")) == [7, 40]
    assert numbers(set_at(known, "deterministic", "threads")) == [41]
    assert set_at(known, "flash_sdp") == set_at(None, "threads") == ()


def test_workers_that_are_not_kept_are_named_where_they_are_told_so():
    loader = Loader(file="train.py", line=20, workers_passed_at=at(24), persistent_off_at=at(9))
    assert numbers(restarts_at(loader)) == [9, 24, 20]
    assert numbers(restarts_at(Loader(file="train.py", line=20))) == [20]
    assert restarts_at(None) == ()


def test_a_loop_over_parameters_is_named_where_it_is_asked_for():
    assert numbers(asked_at(Optimizer("SGD", file="train.py", line=20, foreach_at=at(22)))) == [22, 20]
    assert numbers(asked_at(Optimizer("SGD", file="train.py", line=20))) == [20]
    assert asked_at(None) == ()


def test_workers_are_named_by_the_line_that_gives_them_to_the_loader():
    """In a call of several lines; what the number is comes after the call."""
    several = Loader(file="train.py", line=20, workers_passed_at=at(24), num_workers_at=at(7))
    assert numbers(workers_at(several)) == [24, 20, 7]
    assert numbers(workers_at(Loader(file="train.py", line=20, num_workers_at=at(20)))) == [20]


@pytest.mark.parametrize(("joined", "called", "places"), [(True, 87, [87, 63]), (False, 87, [63, 87]), (True, 0, [63])])
def test_calls_of_collectives_are_joined_where_their_function_is_called(
    joined: bool, called: int, places: list[int]
) -> None:
    """One call a step stays with its own line, and so do several that no function stands between."""
    of_line, above = (Source("train.py", 63),), (Source("train.py", called),) if called else ()
    assert numbers(callers._places(of_line, above, joined=joined)) == places
