"""Ops of one step found again in another, by their names and order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class OfOp(Protocol):
    """What was found of an op. op: its place among those of its step."""

    @property
    def op(self) -> int: ...


_Found = TypeVar("_Found", bound=OfOp)


def in_each(steps: Sequence[Sequence[_Found]], names: Sequence[Sequence[str]]) -> Iterator[tuple[_Found, list[_Found]]]:
    """What was found in the last of several steps and of the same op in each other one, with what was found there.

    names: of the ops of each step.
    """
    *others, last = steps
    at_others = [places(before, names[-1]) for before in names[:-1]]
    earlier = [{one.op: one for one in step} for step in others]
    for one in last:
        seen = [there.get(at.get(one.op, -1)) for there, at in zip(earlier, at_others, strict=True)]
        if all(seen):
            yield one, [each for each in seen if each]


def places(names: Sequence[str], last: Sequence[str]) -> dict[int, int]:
    """Place in `last` -> place in `names`: all in order, or by the ordinal of names that both have as often."""
    if names == last:
        return {at: at for at in range(len(last))}
    here, there = _by_name(names), _by_name(last)
    return {
        b: a
        for name, rows in there.items()
        if len(rows) == len(here.get(name, ()))
        for a, b in zip(here[name], rows, strict=True)
    }


def _by_name(names: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        found.setdefault(name, []).append(at)
    return found
