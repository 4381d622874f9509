"""Whether samples are drawn anew: told by the code that reads them, whatever a dataset makes of its attributes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Drawing:
    def __getitem__(self, index: int) -> float:
        import numpy

        return float(numpy.random.default_rng(index).random())


class Reading:
    def __getitem__(self, index: int) -> int:
        return index


class Odd:
    """Has no attributes, and says so in its own way."""

    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)

    def __getitem__(self, index: int) -> int:
        return index


def test_a_generator_for_each_sample_is_seen_in_the_code() -> None:
    from advisor.capture.inside.facts.data.randomness import made_anew

    assert made_anew(Drawing())
    assert not made_anew(Reading())


def test_attributes_that_raise_are_left_alone() -> None:
    from advisor.capture.inside.facts.data.randomness import made_anew

    with pytest.raises(KeyError):
        getattr(Odd(), "__dict__", {})  # what a careless look would do to the script
    assert made_anew(Odd()) is False
