"""Which statement layers-one-by-one names, wherever the layers' ops are called, and what fewer parameters spare."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.analyses.costs.line_costs import LineCost, LineCosts
from advisor.analyses.lines.call_sites import CallSites
from advisor.analyses.step.deprofiled import Stretch
from advisor.api import GRADIENT_STORE, Ev, Example
from advisor.engine.registry import load_rules
from advisor.model import Source
from advisor.testing import run_example

ROWS = np.arange(8)  # of two steps


def chosen(*lines: tuple[int, float, bool]) -> int | None:
    """The line for four layers. lines: of the stack, the innermost first: number, runs per step, a comprehension."""
    stack = tuple(("model.py", number) for number, _, _ in lines)
    sources = {place: Source(*place, "forward", "call") for place in stack}
    known = tuple(
        LineCost(sources["model.py", number], 1.0, 0.0, {}, Stretch((), (), (), ()), 1.0, visits, inner=inner)
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


# Four layers on one input, their loss, and their nodes; the last lines store gradients and update the parameters.
LAYERS, PRODUCTS = "[F   ][G   ][H   ][I   ][T][L]", "  [M]   [M]   [M]   [M]"
JOINED = "[Z     ][S][Y     ][S][X     ][S][W     ][S]"
OTHERS = "[N][S][N][S][N][S][N][S]"
PLAIN = "[Z     ][Y     ][X     ][W     ]"
UPDATE = "[O                  ]"


def promised(backward: str) -> tuple[float, float]:
    """(low, high) of the saving of four layers, µs, with these nodes in the backward pass."""
    drawn = importlib.import_module("advisor.rules.shared._examples")
    op, node = drawn.op, drawn.node
    given, weight = [512, 384], [96, 384]
    ops = {
        "T": op("cat", [[512, 96]] * 4, number=5),
        "L": op("mse_loss", [512, 384], [512, 384], number=6),
        "M": replace(op("mm", given, [384, 96]), dtypes=["float", "float"]),
        "S": Ev(GRADIENT_STORE),
    }
    if OTHERS in backward:
        ops["N"] = node(99, "MulBackward0")
    for number, (layer, back) in enumerate((("F", "Z"), ("G", "Y"), ("H", "X"), ("I", "W")), 1):
        ops[layer], ops[back] = op("linear", given, weight, [96], number=number), node(number)
    waits: list[list[int]] = [[], [], [], [], [1, 2, 3, 4], [1]]
    names = "linear linear linear linear cat mse_loss"
    facts = drawn.observed(names, waits, layers=[{"layers": [0, 1, 2, 3]}])
    rule = next(rule for rule in load_rules().rules if rule.id == "layers-one-by-one")
    steps = drawn.two_steps(LAYERS + backward + UPDATE, PRODUCTS, **ops)
    [found] = run_example(rule, Example("layers", steps, (0, 1e6), facts))
    assert found.saving is not None
    return found.saving.low_us, found.saving.high_us


def test_a_quarter_of_the_parameters_is_updated_in_a_quarter_of_the_time() -> None:
    # Twenty characters of the optimizer are 2,000 µs: three quarters of that go at most, and nothing for certain.
    (low, high), (others_low, others_high) = promised(JOINED), promised(PLAIN + OTHERS)
    stores_us = 4 * 300.0  # what stores a gradient belongs to the layer behind whose node it stands
    assert high - others_high == pytest.approx(0.75 * (2000 + stores_us), rel=0.05)
    assert low - others_low == pytest.approx(0.75 * stores_us, rel=0.1)


def test_parameters_of_other_layers_are_updated_as_before() -> None:
    (_, high), (_, half) = promised(JOINED), promised(JOINED + OTHERS)
    assert high - half == pytest.approx(0.75 * 2000 / 2, rel=0.05)
