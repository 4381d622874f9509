"""Of nested loops the outer statements belong to the place, too; what runs once in a call of its function does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.loops.loop_places import _function_calls, _functions, _turned_by, enclosing, loop_around
from advisor.model import Source


def lines(**numbers: tuple[float, float]) -> Any:
    """`at60=(visits, µs)` of one function."""
    found: Any = [  # tests add to it
        SimpleNamespace(
            source=Source("train.py", int(name[2:]), "step" if int(name[2:]) > 90 else "similarity", "call"),
            visits=visits,
            us=us,
            inner=False,
            called_from=None if int(name[2:]) > 90 else ("train.py", 95),
        )
        for name, (visits, us) in numbers.items()
    ]
    return LineCosts(found, np.empty(0, np.int64))


def outer(costs: Any, *chosen: int) -> list[int]:
    mine = [line for line in costs.lines if line.source.line in chosen]
    return [line.source.line for line in enclosing(costs, mine)]


def test_the_statement_of_the_outer_loop_and_nothing_above_it() -> None:
    costs = lines(at57=(1, 1), at59=(1, 9), at60=(11, 5), at61=(60, 9), at62=(50, 90), at65=(500, 900))
    assert outer(costs, 61, 62, 65) == [60]


def test_a_function_that_is_called_twice_a_step_is_no_loop() -> None:
    costs = lines(at58=(2, 1), at59=(2, 9), at60=(22, 5), at61=(120, 9), at62=(100, 900))
    assert outer(costs, 61, 62) == [60]


def test_steps_of_an_accumulation_are_not_the_loop() -> None:
    """Four micro-batches, each with a forward pass of the model right above the loop."""
    costs = lines(at30=(1, 1), at31=(5, 1), at32=(4, 2000), at33=(68, 9), at34=(64, 900))
    assert outer(costs, 33, 34) == []


def test_a_function_may_begin_with_the_loop() -> None:
    """No line of it runs once: the one that calls it does."""
    costs = lines(at56=(9, 1), at57=(248, 20), at58=(240, 900), at95=(1, 5))
    assert outer(costs, 57, 58) == [56]
    often = lines(at56=(9, 1), at57=(248, 20), at58=(240, 900), at95=(8, 5))
    assert outer(often, 57, 58) == []


def test_lines_far_above_are_another_place() -> None:
    costs = lines(at50=(1, 1), at55=(11, 5), at61=(60, 9), at62=(50, 900))
    assert outer(costs, 61, 62) == []


def test_the_innermost_loop_around_a_line_or_around_its_callers() -> None:
    costs = lines(at58=(1, 1), at60=(11, 5), at61=(10, 9), at62=(50, 90), at95=(1, 5))
    # Of two functions of one name the other one loops.
    for number, visits, caller in ((20, 50, 62), (12, 900, 95)):
        source = Source("train.py", number, "cell", "call")
        costs.lines.append(
            SimpleNamespace(source=source, visits=visits, us=9, called_from=("train.py", caller), inner=0)
        )

    def around(number: int, function: str) -> int:
        found = loop_around(costs, Source("train.py", number, function))
        return found.line if found is not None else 0

    assert around(62, "similarity") == 60
    assert around(20, "cell") == 60
    assert around(58, "similarity") == 0
    assert loop_around(costs, Source("else.py", 1, "")) is None


def test_what_turns_a_function_is_the_loop_of_its_caller() -> None:
    """`step` calls `similarity` 60 times, in a loop at 94 or in a comprehension; a loop within is its own."""

    def turned(costs: Any, inner: bool = False) -> list[int]:
        costs.lines[-1].inner = inner
        often = _function_calls(costs, _functions(costs))
        place = SimpleNamespace(lines=[costs.lines[1]], calls=often["train.py", "similarity", ("train.py", 95)])
        return [source.line for source in _turned_by(place, costs, often)]  # type: ignore[arg-type]

    assert turned(lines(at57=(60, 1), at58=(60, 900), at93=(1, 1), at94=(61, 2), at95=(60, 9))) == [94, 95]
    assert turned(lines(at57=(60, 1), at58=(60, 900), at93=(1, 1), at95=(1, 9)), inner=True) == [95]
    assert turned(lines(at57=(1, 1), at58=(60, 900), at93=(1, 1), at95=(1, 9))) == []
    assert turned(lines(at57=(4, 1), at58=(4, 900), at93=(1, 1), at94=(5, 2), at95=(4, 9))) == []


def test_functions_of_one_name_are_called_as_often_as_each_is() -> None:
    """`forward` of a cell at line 18, called 140 times by that of a network at line 55, which the loop calls once."""
    costs = lines(at95=(1, 5))
    for number, visits, caller in ((18, 140, 55), (54, 141, 95), (55, 140, 95)):
        source = Source("train.py", number, "forward", "call")
        costs.lines.append(
            SimpleNamespace(source=source, visits=visits, us=9, called_from=("train.py", caller), inner=False)
        )
    assert loop_around(costs, Source("train.py", 55, "forward", "call")) == costs.lines[-2].source
    calls = _function_calls(costs, _functions(costs))
    assert calls["train.py", "forward", ("train.py", 95)] == 1
    assert calls["train.py", "forward", ("train.py", 55)] == 140
