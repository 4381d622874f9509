"""The statements of the loops around a place, told by how often each line runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from advisor.analyses.loops.line_blocks import loops_around


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


def test_a_comprehension_runs_its_own_line_for_each_turn() -> None:
    assert found(1, 64, inner=(1,)) == []
