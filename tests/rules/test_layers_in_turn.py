"""Which statement layers-one-by-one names: the one that runs the layers in turn, wherever their ops are called."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from advisor.analyses.costs.line_costs import LineCost, LineCosts
from advisor.analyses.lines.call_sites import CallSites
from advisor.analyses.step.deprofiled import Stretch
from advisor.model import Source

ROWS = np.arange(8)  # of two steps


def chosen(*lines: tuple[int, float, bool]) -> int | None:
    """The line for four layers. lines: of the stack, the innermost first: number, runs per step, a comprehension."""
    stack = tuple(("model.py", number) for number, _, _ in lines)
    sources = {place: Source(*place, "forward", "call") for place in stack}
    known = tuple(
        LineCost(sources["model.py", number], 1.0, 0.0, {}, Stretch((), (), ()), 1.0, visits, inner=inner)
        for number, visits, inner in lines
    )
    sites = CallSites(sources, {}, lambda _: stack, lambda _: 1)
    module = importlib.import_module("advisor.rules.cheaper_equivalents.products._equal_layers")
    found = module.loop_line(sites, LineCosts(known, np.empty(0, np.int64)), ROWS, 4, 2)
    return found.line if found else None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([(5, 1.0, True), (20, 1.0, False)], 5, id="a comprehension over layers"),
        pytest.param([(3, 4.0, False), (7, 1.0, True), (20, 1.0, False)], 7, id="one over modules of the script"),
        pytest.param([(6, 4.0, False), (20, 1.0, False)], 6, id="a loop"),
        pytest.param([(3, 4.0, False), (6, 4.0, False), (20, 1.0, False)], 6, id="a loop over modules of the script"),
        pytest.param([(3, 4.0, False)], 3, id="a loop of the script itself"),
    ],
)
def test_the_statement_that_runs_the_layers(lines: list[tuple[int, float, bool]], expected: int) -> None:
    assert chosen(*lines) == expected
