"""Numbers as the messages of rules say them."""

from __future__ import annotations

import pytest

from advisor.api import duration
from advisor.rules.batch._batch_size import per_second
from advisor.rules.shared._words import plural


@pytest.mark.parametrize(
    ("us", "said"),
    [
        *(
            (85.2, "85.2 µs"),
            (999.4, "999 µs"),
            (999.6, "1 ms"),
            (2_431, "2.43 ms"),
            (999_600, "1 s"),
            (130e6, "130 s"),
        ),
        *((999.6e6, "1,000 s"), (1_800e6, "1,800 s"), (86_400e6, "86,400 s")),
    ],
)
def test_durations(us: float, said: str) -> None:
    assert duration(us) == said


@pytest.mark.parametrize(("number", "said"), [(1.0, "1 op"), (2.0, "2 ops"), (0.5, "0.5 ops"), (1465, "1,465 ops")])
def test_one_of_a_thing_is_one(number: float, said: str) -> None:
    assert plural(number, "op") == said


@pytest.mark.parametrize(
    ("rate", "said"), [(0.0331, "0.033"), (0.5, "0.5"), (1.47, "1.5"), (14.6, "15"), (154.0, "150"), (6_231.0, "6,200")]
)
def test_rates_have_two_digits_that_count(rate: float, said: str) -> None:
    assert per_second(rate) == said
