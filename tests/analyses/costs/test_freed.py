"""What it takes to unmap large results, on drawn steps whose sizes and gaps are known."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.analyses.costs.freed import Freed
from advisor.analyses.costs.price import Price
from advisor.api import Drawing, Ev, Example, constant, draw, edits
from advisor.testing import computed

MOST = constant("memory.freed_us_per_mb").high
SIXTY_FOUR_MB = 16_000_000  # fp32 numbers


def steps(gone: Ev, gap: int = 6) -> Drawing:
    """Two steps of 20 ms: 6 ms in an op that may go (G), a gap, and the rest in an op that stays (R)."""
    step = f"[G    ]{' ' * gap}[R{' ' * (11 - gap)}] "
    return draw(
        f"""
        step   [1                  ][2                  ]
        cpu    {step * 2}
        """,
        us=1000,
        G=gone,
        R=Ev("aten::add", dims=[[64], [64]], dtypes=["float", "float"]),
    )


def op(name: str, numbers: int) -> Ev:
    return Ev(name, dims=[[numbers], [numbers]], dtypes=["float", "float"])


def freed_us(drawing: Drawing) -> float:
    """The most that goes with the first op of each step, recorded µs per step."""
    known = computed(Example("two steps", drawing, None))
    gone = np.zeros(len(known.get(Price).ops.events))
    gone[known.get(Price).ops.outermost[::2]] = 1
    return known.get(Freed).us(gone)


def test_a_result_with_a_mapping_of_its_own_takes_what_was_measured() -> None:
    assert freed_us(steps(op("aten::mul", SIXTY_FOUR_MB))) == pytest.approx(64 * MOST)


def test_never_more_than_lies_behind_the_op() -> None:
    assert freed_us(steps(op("aten::mul", SIXTY_FOUR_MB), gap=2)) == pytest.approx(2000)


@pytest.mark.parametrize(
    "gone",
    [
        op("aten::mul", 8_000_000),  # of 32 MB, below 32 MiB: it may come from the heap
        op("aten::mul_", SIXTY_FOUR_MB),  # in place
        Ev("aten::mul"),  # no sizes
    ],
)
def test_nothing_is_unmapped(gone: Ev) -> None:
    assert freed_us(steps(gone)) == 0


def test_the_high_end_of_a_saving_holds_it() -> None:
    known = computed(Example("two steps", steps(op("aten::mul", SIXTY_FOUR_MB)), None))
    price = known.get(Price)
    gone = [edits.remove(price.ops.outermost[::2])]
    saving = price.saving(gone, gone, (), "without the op")
    took_us = price.scale.scaled(price.ops.us(gone[0].rows))
    assert saving.low_us == pytest.approx(took_us)
    assert saving.high_us >= took_us + 64 * MOST
    assert "unmapping its large results" in saving.how
