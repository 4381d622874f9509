"""A pattern and its cheaper equivalent: what the mechanism behind a family of rules makes of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.api import BACKWARD, FORWARD, GEMM, SYNC, Ev, Example, Fix, Price, draw
from advisor.rules.cheaper_equivalents._equivalent import Equivalent, whole, worth
from advisor.testing import computed

# Two steps of a layer, the pattern (P) and the backward pass; on a device its kernel (K) is most of the step.
_ON_HOST = """
    step   [1                  ][2                  ]
    cpu    [F][P       ][B   ]   [F][P       ][B   ]
    """
_ON_DEVICE = """
    step   [1                      ][2                      ]
    cpu    [F][P][B][S            ]  [F][P][B][S            ]
    gpu 7     [f]  [K          ]        [f]  [K          ]
    """


def price(drawn: str, **more: Any) -> Price:
    """What work costs in a drawing; a box is 100 µs wide for each character."""
    launches = "kernel" if more else ""
    ops = {"F": FORWARD, "P": Ev("aten::slow", launches=launches), "B": BACKWARD}
    if more:
        ops |= {"F": Ev(FORWARD.name, launches="kernel"), "B": Ev(BACKWARD.name, launches=""), "S": SYNC}
    found: Price = computed(Example("drawn", draw(drawn, us=100, **ops, **more), None)).get(Price)
    return found


def pattern(of: Price) -> np.ndarray:
    return np.flatnonzero(of.ops.events.exactly("aten::slow"))


@pytest.mark.parametrize("ops", ["any", "long", "replayed"])
def test_what_goes_less_what_comes_instead(ops: Any) -> None:
    of = price(_ON_HOST)
    one = Equivalent(parts=((pattern(of), 0.5, 1.0),), how="drawn", ops=ops, instead_us=(10.0, 50.0))
    found = worth(of, None, one, 0.02)
    assert found
    assert found.saving
    assert (found.saving.low_us, found.saving.high_us) == pytest.approx((450.0, 990.0))
    assert (found.spent_us, found.spent, found.at) == (1000.0, "1 ms of each step (48 %)", "")
    finding = found.finding(f"This takes {found.spent}.", {}, Fix("Do less", "exact", "slow()", "quick()"))
    assert (finding.at_most, finding.claims) == ("high", ("forward", "backward", "other_ops"))


def test_a_saving_below_the_threshold_is_none() -> None:
    of = price(_ON_HOST)
    one = Equivalent(parts=((pattern(of), 0.01, 0.05),), how="drawn")
    assert worth(of, None, one, 0.02)
    assert not worth(of, None, one, 0.03)


def test_a_replacement_of_unknown_cost_saves_an_unknown_time() -> None:
    of = price(_ON_HOST)
    found = worth(of, None, Equivalent(parts=whole(pattern(of)), how="drawn", instead_us=None), 0.02)
    assert found
    assert found.saving is None


def test_what_the_replacement_reads_may_take_longer() -> None:
    of = price(_ON_HOST)
    layer = np.flatnonzero(of.ops.events.exactly(FORWARD.name))
    one = Equivalent(parts=(*whole(pattern(of)), (layer, -0.5, -0.25)), how="drawn", ops="long")
    found = worth(of, None, one, 0.02)
    assert found
    assert found.saving
    assert (found.saving.low_us, found.saving.high_us) == pytest.approx(
        (850.0, 925.0)
    )  # of the layer's 300 µs 75 or 150 more


def test_on_a_device_a_share_is_one_of_the_work_that_is_launched() -> None:
    of = price(_ON_DEVICE, f=GEMM, K=GEMM)
    one = Equivalent(parts=((pattern(of), 0.5, 1.0),), how="drawn", instead_us=(10.0, 50.0))
    found = worth(of, None, one, 0.02)
    assert found
    assert found.saving
    assert found.at_most == "medium"
    assert found.claims == ("compute",)
    assert found.saving.low_us == pytest.approx(600.0, rel=0.1)
    assert found.saving.high_us > found.saving.low_us


def test_a_replacement_that_was_not_timed_on_a_device_may_save_nothing_there() -> None:
    of = price(_ON_DEVICE, f=GEMM, K=GEMM)
    one = Equivalent(parts=((pattern(of), 0.5, 0.9),), how="drawn", timed_on_device=False)
    found = worth(of, None, one, 0.02)
    assert found
    assert found.saving
    assert (found.saving.low_us, found.at_most) == (0.0, "low")
    assert found.saving.high_us > 1000
