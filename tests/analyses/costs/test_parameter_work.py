"""What a step does once for each parameter, and what fewer parameters spare of it, against drawings."""

from __future__ import annotations

import pytest

from advisor.analyses.costs.parameter_work import ParameterWork
from advisor.analyses.costs.price import Price
from advisor.api import Drawing, Ev, Example, draw
from advisor.testing import computed
from advisor.trace.intervals import total

# Steps of 2,400 µs: 500 forward, 600 backward, 400 between them and the update, 500 in the optimizer, 400 clearing.
LANES = """
    step   [1                     ][2                     ]
    cpu    [F  ][B   ][L ][O  ][Z ][F  ][B   ][L ][O  ][Z ]
    """
CLEARS = Ev("Optimizer.zero_grad#SGD.zero_grad", "user_annotation")


def drawn(between: str) -> Drawing:
    return draw(LANES, us=100, L=between, Z=CLEARS)


def work_us(drawing: Drawing) -> float:
    known = computed(Example("a step", drawing, None))
    return known.get(Price).ops.steps.per_step_us(total(known.get(ParameterWork).spans))


def test_updates_cleared_gradients_and_ops_on_lists_are_work_per_parameter() -> None:
    assert work_us(drawn("aten::_foreach_norm")) == pytest.approx(1300, abs=5)


def test_an_op_on_one_tensor_is_none() -> None:
    assert work_us(drawn("aten::mul")) == pytest.approx(900, abs=5)


def test_ten_parameters_joined_into_one_leave_a_tenth_of_it() -> None:
    price = computed(Example("a step", drawn("aten::mul"), None)).get(Price)
    assert price.fewer_parameters_us(1.0, 0.1) == pytest.approx(0.9 * 900, abs=5)
    assert price.fewer_parameters_us(0.5, 0.1) == pytest.approx(0.45 * 900, abs=5)


def test_what_joins_no_parameter_spares_nothing() -> None:
    price = computed(Example("a step", drawn("aten::mul"), None)).get(Price)
    assert price.fewer_parameters_us(0.0, 0.1) == 0.0
    assert price.fewer_parameters_us(1.0, 1.0) == 0.0
