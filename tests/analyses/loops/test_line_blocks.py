"""The statements of the loops around a place, told by how often each line runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.analyses.costs.line_costs import LineCost
from advisor.analyses.loops.line_blocks import block, loops_around
from advisor.analyses.step.deprofiled import Stretch
from advisor.model import Source


def found(*visits: float, calls: float = 1.0, inner: tuple[int, ...] = ()) -> list[int]:
    """Places, from 0, of those of the lines that are statements of loops."""
    lines: list[Any] = [SimpleNamespace(at=at, visits=one, inner=at in inner) for at, one in enumerate(visits)]
    return [line.at for line in loops_around(lines, calls)]


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        ((1, 12, 11, 11 * 18), [1, 3]),  # a statement between two nested loops is none of them
        ((1, 12, 11 * 18, 11 * 17), [1, 2]),  # one right below the other
        ((12, 11), [0]),  # a function that begins with a loop
        ((1, 12, 11 * 5, 11 * 4, 11, 11 * 9), [1, 5]),  # a loop beside it that is over
        ((1, 12, 11, 1, 31), [4]),  # and one that is over before it begins
        ((1, 1, 2), []),  # `with` runs its line twice
        ((1, 12, 11, 3, 3), [1]),  # an `if` that holds now and then
    ],
)
def test_statements_of_loops_run_more_often_than_what_is_above_them(
    visits: tuple[float, ...], expected: list[int]
) -> None:
    assert found(*visits) == expected


def test_a_function_that_is_called_often_is_no_loop() -> None:
    assert found(40, 40, calls=40) == []
    assert found(40, 40 * 6, calls=40) == [1]


def test_the_text_tells_a_loop_from_a_function_that_a_library_calls_for_each_layer() -> None:
    """A line calls nn.Sequential once, which calls forward (line 18) for each of four layers; line 20 is its loop."""
    lines = [
        LineCost(Source("train.py", line, "forward"), us, 0.0, {}, Stretch((us,), (0.0,), (0.0,), (0.0,)), 0.0, visits)
        for line, us, visits in ((18, 9.0, 4), (19, 1.0, 4), (20, 8.0, 100), (21, 90.0, 96))
    ]
    without_text = block(lines)
    assert [source.line for source in without_text.heads] == [18, 20]
    known = replace(without_text, loops=frozenset({20, 31}))
    assert [source.line for source in known.heads] == [20]
    assert known.place == "train.py:20-21, in `forward`"


def test_a_comprehension_runs_its_own_line_for_each_turn() -> None:
    assert found(1, 64, inner=(1,)) == []
