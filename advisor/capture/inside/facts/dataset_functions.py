"""The functions of the script that make samples and put batches together: where they begin.

In workers no line is recorded, and a short run may end before its lines are: then this is all that can be named.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ..guards.user_code import relative

# Data sets inside data sets that are looked into: Subset of Subset of …
_MOST_WITHIN = 8
# What a fetcher calls, in the order in which it prefers them.
_READ_BY = ("__getitems__", "__getitem__", "__iter__")


def facts(iterator: Any) -> dict[str, Any]:
    """`sample_from` and `collate_from`: [file, first line, name] of the script's own function, or nothing."""
    found = {"sample_from": _reader(iterator._dataset), "collate_from": _function(iterator._collate_fn)}
    return {name: _place(function) for name, function in found.items() if function is not None}


def _reader(dataset: Any) -> FunctionType | None:
    """What reads a sample; of data sets of torch that hold another, the one of that."""
    for _ in range(_MOST_WITHIN):
        kind = type(dataset)
        for name in _READ_BY:
            function = getattr(kind, name, None)
            if isinstance(function, FunctionType) and not _of_torch(function):
                return function
        dataset = getattr(dataset, "__dict__", {}).get("dataset")
        if dataset is None:
            return None
    return None


def _function(called: Any) -> FunctionType | None:
    """The function behind something that is called; None where it is torch's, or none of Python's."""
    for _ in range(_MOST_WITHIN):
        if isinstance(called, FunctionType):
            return None if _of_torch(called) else called
        # A partial function has `func`, a method `__func__`, an object of a class of its own `__call__`.
        called = (
            getattr(called, "func", None) or getattr(called, "__func__", None) or vars(type(called)).get("__call__")
        )
    return None


def _of_torch(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


def _place(function: FunctionType) -> list[Any]:
    return [relative(function.__code__.co_filename), function.__code__.co_firstlineno, function.__name__]
