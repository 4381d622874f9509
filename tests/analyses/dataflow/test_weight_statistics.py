"""Statistics of weights in the profiled steps: their rows, and the time from the first to the last of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.api import Drawing, Ev, Example, WeightStatistics, draw
from advisor.testing import computed

WEIGHT = [64, 64]


def op(name: str, *dims: list[int]) -> Ev:
    return Ev(f"aten::{name}", dims=list(dims), dtypes=["float"] * len(dims))


def steps(second: str) -> Drawing:
    """Two steps: products (P), the least and the most of a weight (L, M), an op (S), its histogram (H)."""
    return draw(
        f"""
        step   [1                   ][2                   ]
        cpu    [P  ][L][M] [H  ][P ] {second}
        """,
        us=100,
        P=op("mm", WEIGHT, WEIGHT),
        L=op("min", WEIGHT),
        M=op("max", WEIGHT),
        H=op("histc", WEIGHT),
    )


def found(second: str) -> WeightStatistics:
    names = ["mm", "min", "max", "histc"]
    seen: dict[str, Any] = {"names": [f"aten::{one}" for one in names], "ops": [0, 1, 2, 3, 0]}
    seen |= {"waits": [[]] * 5, "leaving": [3], "statistics": [1, 2, 3]}
    return computed(Example("two steps", steps(second), None, {"reused": seen})).get(WeightStatistics)


def test_from_the_first_to_the_last_with_what_lies_between() -> None:
    statistics = found("[P  ][L][M] [H  ][P ]")
    assert len(statistics.ops) == 6
    assert np.diff(statistics.spans, axis=1).ravel().tolist() == [1_200_000, 1_200_000]


def test_a_step_that_has_none_of_them() -> None:
    statistics = found("[P  ][P ]")
    assert len(statistics.ops) == 3
    assert len(statistics.spans) == 1
