"""Works each analysis out once, on demand, from the types its `compute` names.

An analysis is a class with a `compute` classmethod. The annotations of compute's parameters say what it needs: other
analyses, or inputs given from outside (`Trace`, `Record`, …). `X | None` asks for X where it can be had.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Missing(Exception):  # noqa: N818 - an outcome, not a fault
    """An analysis cannot be computed from this input; the message says why and what to do."""


class Computed:
    """The analyses of one trace: each is computed at most once, failures included.

    Several threads may ask: what one of them is computing, the others wait for.
    """

    def __init__(self, watch: Callable[[str], None] | None = None, **inputs: Any) -> None:
        """`inputs`: values given from outside; their types are what analyses ask for.

        watch: told the name of each analysis when its turn comes; never by two threads at once.
        """
        self._watch = watch
        self._watching = threading.Lock()
        self._turns: dict[type, _Turn] = {}
        self._known: dict[type, Any] = {type(value): value for value in inputs.values() if value is not None}
        self._failed: dict[type, Exception] = {}

    def get(self, kind: type[T]) -> T:
        """The analysis of that type. Raises Missing where the input does not allow it."""
        if kind in self._known:
            return typing.cast(T, self._known[kind])
        if kind in self._failed:
            raise self._failed[kind]
        compute = getattr(kind, "compute", None)
        if compute is None:
            raise Missing(getattr(kind, "missing", f"{kind.__name__} was not recorded"))
        mine = _Turn()
        turn = self._turns.setdefault(kind, mine)
        if turn is not mine:
            turn.wait(kind)
            return self.get(kind)
        try:
            # Another thread's turn may have ended between our looking and ours.
            if kind not in self._known and kind not in self._failed:
                self._work_out(kind, compute)
        finally:
            del self._turns[kind]
            turn.over.set()
        return self.get(kind)

    def _work_out(self, kind: type, compute: Callable[..., Any]) -> None:
        try:
            arguments = self.arguments(compute)
            if self._watch is not None:
                with self._watching:
                    self._watch(kind.__name__)
            self._known[kind] = compute(**arguments)
        except Exception as failure:
            self._failed[kind] = failure

    def find(self, kind: type[T]) -> T | None:
        """The analysis of that type, or None where it is Missing."""
        try:
            return self.get(kind)
        except Missing:
            return None

    def arguments(self, function: Callable[..., Any]) -> dict[str, Any]:
        """What `function` needs, by the annotations of its positional parameters."""
        return {
            name: self.find(kind) if optional else self.get(kind) for name, (kind, optional) in needs(function).items()
        }


class _Turn:
    """One thread's work on an analysis; `over` is set when it is known or has failed."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.over = threading.Event()

    def wait(self, kind: type) -> None:
        """Until it is over. Raises RecursionError for an analysis that is asked for in its own making."""
        if self.thread == threading.get_ident() and not self.over.is_set():
            raise RecursionError(f"{kind.__name__} needs itself")
        self.over.wait()


@functools.cache
def needs(function: Callable[..., Any]) -> Mapping[str, tuple[type, bool]]:
    """Parameter name -> (type, optional) of the positional parameters; keyword-only ones are thresholds."""
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    wanted = {}
    for name, annotation in _positional(function):
        if annotation is inspect.Parameter.empty:
            raise TypeError(f"{function.__module__}.{function.__qualname__}: parameter '{name}' has no type")
        wanted[name] = _named(annotation, scope) or _split_optional(typing.get_type_hints(function)[name])
    return wanted


@functools.cache
def needs_in_all(function: Callable[..., Any]) -> frozenset[type]:
    """The types that a function asks for, and those that their `compute` asks for, and so on."""
    found: set[type] = set()
    waiting = [function]
    while waiting:
        for kind, _ in needs(waiting.pop()).values():
            compute = getattr(kind, "compute", None)
            if kind not in found and compute is not None:
                waiting.append(compute)
            found.add(kind)
    return frozenset(found)


def _positional(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Names and annotations of the positional parameters, without the one that a method is bound to."""
    plain = getattr(function, "__func__", function)
    if isinstance(plain, types.FunctionType) and not hasattr(plain, "__wrapped__"):
        code, empty = plain.__code__, inspect.Parameter.empty
        if not code.co_flags & inspect.CO_VARARGS:  # a tenth of the time that a whole signature takes
            names = code.co_varnames[plain is not function : code.co_argcount]
            return [(name, plain.__annotations__.get(name, empty)) for name in names]
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.annotation) for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]


def _named(annotation: Any, scope: Mapping[str, Any]) -> tuple[type, bool] | None:
    """What `X` or `X | None` names in its module; None for any other form.

    Nearly all annotations have these two forms, and evaluating the 600 of all rules and analyses took 15 ms.
    """
    if not isinstance(annotation, str):
        return None
    kind = scope.get(annotation.removesuffix(" | None"))
    return (kind, annotation.endswith(" | None")) if isinstance(kind, type) else None


def _split_optional(hint: Any) -> tuple[type, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        if len(kinds) == 1:
            return kinds[0], True
        raise TypeError(f"ask for one type or None, not {hint}")
    return hint, False
