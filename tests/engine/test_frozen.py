"""The house's frozen dataclasses are those of the standard library, for whoever makes, compares and changes them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any, ClassVar

import msgspec
import pytest

from advisor.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Own:
    """What both are declared as."""

    kind: ClassVar[str] = "twin"
    first: int
    second: float = 0.5
    third: tuple[int, ...] = (1, 2)
    fourth: dict[str, int] = field(default_factory=dict, compare=False)
    hidden: str = field(default="", repr=False)
    made: list[int] = field(default_factory=list, init=False, compare=False)
    fixed: int = field(default=7, init=False)

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError("first is negative")

    @property
    def double(self) -> int:
        return self.first * 2


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """What both are declared as."""

    kind: ClassVar[str] = "twin"
    first: int
    second: float = 0.5
    third: tuple[int, ...] = (1, 2)
    fourth: dict[str, int] = field(default_factory=dict, compare=False)
    hidden: str = field(default="", repr=False)
    made: list[int] = field(default_factory=list, init=False, compare=False)
    fixed: int = field(default=7, init=False)

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError("first is negative")

    @property
    def double(self) -> int:
        return self.first * 2


@dataclass(frozen=True, slots=True)
class One:
    only: int


@dataclass(frozen=True, slots=True, eq=False)
class ByIdentity:
    only: int


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Below(Own):
    fifth: int = 5


BOTH = pytest.mark.parametrize("kind", [Own, Theirs])
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, 2.0, (3,), {"a": 1}, "x"), {}),
    ((), {"first": 1, "hidden": "y"}),
    ((2,), {"fourth": {"b": 2}}),
]


@pytest.mark.parametrize(("positional", "named"), CALLS)
def test_instances_hold_and_show_the_same(positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    own, theirs = Own(*positional, **named), Theirs(*positional, **named)
    assert dataclasses.asdict(own) == dataclasses.asdict(theirs)
    assert repr(own) == repr(theirs).replace("Theirs", "Own")
    assert hash(own) == hash(theirs)
    assert own.double == theirs.double
    assert msgspec.json.encode(own) == msgspec.json.encode(theirs)


@BOTH
def test_wrong_calls_are_refused(kind: Any) -> None:
    for call in (kind, lambda: kind(1, first=2), lambda: kind(1, unknown=3), lambda: kind(*range(6))):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            call()
    with pytest.raises(ValueError, match="negative"):
        kind(-1)


@BOTH
def test_nothing_can_be_changed(kind: Any) -> None:
    one = kind(1)
    for change in (lambda: setattr(one, "first", 2), lambda: setattr(one, "new", 2), lambda: delattr(one, "first")):
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
            change()
    assert one.first == 1
    assert not hasattr(one, "__dict__")
    assert dataclasses.replace(one, first=3) == kind(3)


@BOTH
def test_equality_is_that_of_the_compared_values(kind: Any) -> None:
    assert kind(1) == kind(1, fourth={"left": 1})
    assert kind(1) != kind(2)
    assert kind(1) != (1, 0.5, (1, 2), {}, "")
    assert len({kind(1), kind(1), kind(2)}) == 2
    assert kind(1).fourth is not kind(1).fourth
    assert kind(1).made is not kind(1).made
    assert kind(1).fixed == 7


@BOTH
def test_copies_and_pickles_are_equal(kind: Any) -> None:
    one = kind(1, 2.0, (3,), {"a": [1]}, "x")
    for again in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert again == one
        assert dataclasses.asdict(again) == dataclasses.asdict(one)


@BOTH
def test_json_is_read_into_it(kind: Any) -> None:
    assert msgspec.json.decode(b'{"first": 4, "third": [5]}', type=kind) == kind(4, third=(5,))
    with pytest.raises(msgspec.ValidationError, match="negative"):
        msgspec.json.decode(b'{"first": -4}', type=kind)


@BOTH
def test_patterns_match_by_position(kind: Any) -> None:
    match kind(1, 2.0):
        case kind(first, second):
            assert (first, second) == (1, 2.0)
        case _:
            pytest.fail("no match")


def test_one_field_none_and_identity() -> None:
    assert One(1) == One(1) != One(2)
    assert hash(One(1)) == hash((1,))
    assert ByIdentity(1) != ByIdentity(1)
    assert len({ByIdentity(1), ByIdentity(1)}) == 2
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"


def test_classes_below_it_are_frozen_too() -> None:
    below = Below(1, fifth=6)
    assert (below.double, below.fifth, below.second) == (2, 6, 0.5)
    assert below != Own(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        below.fifth = 7  # type: ignore[misc]
    with pytest.raises(TypeError, match="non-frozen"):

        @dataclasses.dataclass
        class Loose(Own):
            sixth: int = 6


def test_fields_that_it_does_not_know_are_refused() -> None:
    with pytest.raises(TypeError, match="standard library"):

        @dataclass(frozen=True, slots=True)
        class Odd:
            first: int = field(default=0, kw_only=True)
