"""Ops of one step found again in another, by their names and order. Pure and of the standard library."""

from __future__ import annotations

from collections.abc import Sequence


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
