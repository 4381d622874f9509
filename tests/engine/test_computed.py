"""Analyses are worked out once, by type; what is missing says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from advisor.computed import Computed, Missing, needs


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Double:
    value: int
    made: ClassVar[list[int]] = []

    @classmethod
    def compute(cls, number: Number) -> Double:
        cls.made.append(number.value)
        return cls(number.value * 2)


@dataclass(frozen=True)
class NeverThere:
    failures: ClassVar[list[int]] = []

    @classmethod
    def compute(cls, number: Number) -> NeverThere:
        cls.failures.append(1)
        raise Missing("no such thing; record one")


@dataclass(frozen=True)
class Lenient:
    seen: NeverThere | None

    @classmethod
    def compute(cls, seen: NeverThere | None, double: Double) -> Lenient:
        return cls(seen)


def test_each_analysis_is_computed_once() -> None:
    Double.made.clear()
    computed = Computed(number=Number(3))
    assert computed.get(Double).value == 6
    assert computed.get(Double) is computed.get(Double)
    assert Double.made == [3]


def test_what_is_missing_says_what_to_do_and_is_not_tried_again() -> None:
    NeverThere.failures.clear()
    computed = Computed(number=Number(3))
    for _ in range(2):
        with pytest.raises(Missing, match="record one"):
            computed.get(NeverThere)
    assert computed.find(NeverThere) is None
    assert NeverThere.failures == [1]


def test_an_optional_need_is_none_where_it_is_missing() -> None:
    assert Computed(number=Number(1)).get(Lenient).seen is None


def test_an_input_that_was_not_given_is_missing() -> None:
    with pytest.raises(Missing, match="Number was not recorded"):
        Computed().get(Double)


def test_keyword_only_parameters_are_thresholds_not_needs() -> None:
    def check(double: Double, seen: NeverThere | None, *, limit: float = 1.0) -> None: ...

    assert dict(needs(check)) == {"double": (Double, False), "seen": (NeverThere, True)}


def test_a_parameter_without_a_type_is_a_mistake_of_the_rule() -> None:
    def check(anything) -> None:  # type: ignore[no-untyped-def]
        ...

    with pytest.raises(TypeError, match="'anything' has no type"):
        needs(check)
