"""How often something happens, as messages say it."""

import pytest

from advisor.rules.shared._words import often


@pytest.mark.parametrize(
    ("per_step", "said"),
    [
        (3.0, "3 times a step"),
        (1.04, "once a step"),
        (0.7, "0.7 times a step"),
        (0.66, "once in 2 steps"),
        (0.2, "once in 5 steps"),
        (1 / 300, "once in 300 steps"),
    ],
)
def test_how_often(per_step: float, said: str) -> None:
    assert often(per_step) == said
