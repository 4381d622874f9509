"""Lines of an evaluation that runs in some steps: from the account of the run where the recorded step had none."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.capture.record import CodePlace, RankRecord, Settings
from advisor.model import RunPart, Source
from advisor.model.whole_run import RunLine

rule: Any = import_module("advisor.rules.needless_work.evaluation_with_gradients")
intervals: Any = import_module("advisor.rules.run._intervals")
TRAINS, CALLS, EVALUATES = (Source("train.py", line) for line in (33, 38, 27))


def run(*lines: Source) -> Any:
    part = SimpleNamespace(lines=tuple(SimpleNamespace(source=line) for line in lines))
    return SimpleNamespace(loop={"evaluation": part} if lines else {})


@pytest.mark.parametrize(
    ("known", "where", "expected"),
    [
        (run(CALLS), (TRAINS,), (CALLS,)),  # the recorded step did not evaluate: its line is that of the training
        (run(CALLS, EVALUATES), (EVALUATES, CALLS), (EVALUATES, CALLS)),
        (run(), (TRAINS,), (TRAINS,)),
        (None, (TRAINS,), (TRAINS,)),
    ],
)
def test_the_account_of_the_run_names_the_evaluation(known: Any, where: Any, expected: Any) -> None:
    assert rule._watched(known, where) == expected


@pytest.mark.parametrize(
    ("guard", "framework", "places", "told"),
    [
        (30, None, [9, 30, 33], 30),  # the `if` asks for the number that line 9 gives
        (None, None, [33, 9], 33),  # the number may be that of something else
        (None, "lightning", [9, 33], 9),
    ],
)
def test_the_number_that_says_how_often_comes_first_where_it_is_asked_for(
    guard: int | None, framework: str | None, places: list[int], told: int
) -> None:
    """The message names where the evaluation happens."""
    line = RunLine(TRAINS, 4e6, guard=Source("train.py", guard) if guard else None)
    settings = Settings(framework=framework, set_at={"evaluation_every": CodePlace("train.py", 9)})
    known = RunPart("evaluation", 4e6, 0.4, lines=(line,)), RankRecord(settings=settings), intervals.EVALUATIONS
    assert [one.line for one in intervals.places_of(*known)] == places
    assert intervals.happens_at(*known).line == told
