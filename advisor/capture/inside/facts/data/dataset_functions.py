"""The functions of the script that make samples and put batches together: where they begin.

In workers no line is recorded, and a short run may end before its lines are: then this is all that can be named.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from ...guards.user_code import file_of

# Data sets inside data sets that are looked into: Subset of Subset of …
_MOST_WITHIN = 8
# What a fetcher calls, in the order in which it prefers them.
_READ_BY = ("__getitems__", "__getitem__", "__iter__")


def facts(iterator: Any, foreign: tuple[str, ...]) -> dict[str, Any]:
    """`sample_from` and `collate_from`: [file, first line, name] of the script's own function, or nothing.

    foreign: folders of code that is not the user's.
    """
    reader = next((one for one in _readers(iterator._dataset) if file_of(one.__code__, foreign)), None)
    collate = next((one for one in _functions(iterator._collate_fn) if file_of(one.__code__, foreign)), None)
    found = {"sample_from": reader, "collate_from": collate}
    return {name: _place(function, foreign) for name, function in found.items() if function is not None}


def _readers(dataset: Any) -> Iterator[FunctionType]:
    """What reads a sample, of a data set and of those that it holds."""
    for _ in range(_MOST_WITHIN):
        functions = (getattr(type(dataset), name, None) for name in _READ_BY)
        yield from (one for one in functions if isinstance(one, FunctionType))
        dataset = getattr(dataset, "__dict__", {}).get("dataset")


def _functions(called: Any) -> Iterator[FunctionType]:
    """The functions behind something that is called, from the outermost."""
    for _ in range(_MOST_WITHIN):
        if isinstance(called, FunctionType):
            yield called
            return
        # An object of a class of its own has `__call__`; Transformers' collator that drops columns, another collator.
        own = vars(type(called)).get("__call__")
        if isinstance(own, FunctionType):
            yield own
        # A partial function has `func`, a method `__func__`.
        known = getattr(called, "__dict__", {})
        called = getattr(called, "func", None) or getattr(called, "__func__", None) or known.get("data_collator")


def _place(function: FunctionType, foreign: tuple[str, ...]) -> list[Any]:
    return [file_of(function.__code__, foreign), function.__code__.co_firstlineno, function.__name__]
