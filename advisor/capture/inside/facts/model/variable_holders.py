"""Which variable of the script holds objects: local ones, what containers among them hold, attributes of objects.

None of the script's code runs: attributes are read from where Python keeps them, no property and no `__getattr__` is
asked, and containers are read as what they are built on.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from ...guards.user_code import file_of, foreign_folders

# A dictionary of meters in a trainer: variable, attribute, key, attribute, and what the list there holds.
_DEPTH = 5
# Objects looked at for one frame, a millisecond for some thousand; and of one container, whose newest are the last.
_MOST_OBJECTS, _MOST_OF_ONE = 20_000, 4096
# Libraries whose objects are large, and hold no meters of the script's.
_FOREIGN = frozenset(("torch", "numpy", "pandas", "builtins", "threading", "logging", "argparse", "pathlib"))
_PLAIN = frozenset((int, float, str, bytes, bool, type(None), complex))
_ADDS = r"(\[[^\]]*\])*\s*(\.(append|appendleft|extend|add|insert)\(|[+-]=|=[^=].*%s)"


def holder(frame: FrameType, wanted: set[int], least: int) -> dict[str, Any]:
    """The variable that holds so many of these objects, with the line that adds to it; nothing where none is found."""
    foreign = foreign_folders()
    walked: FrameType | None = frame
    while walked is not None:
        code = walked.f_code
        file = file_of(code, foreign)
        found = _variable(walked, wanted, least) if file else None
        if found is not None:
            return {"name": found.name, **_place(found, code, foreign)}
        walked = walked.f_back
    return {}


class _Found:
    """Where the objects are. name: as the script would write it; owner: of an attribute its object's class."""

    __slots__ = ("attribute", "name", "owner")

    def __init__(self, name: str, owner: type | None = None, attribute: str = "") -> None:
        self.name, self.owner, self.attribute = name, owner, attribute


class _Search:
    """Looks for objects below the variables of one frame; the innermost that holds enough of them is `found`."""

    def __init__(self, wanted: set[int], least: int) -> None:
        self.wanted, self.least = wanted, least
        self.found: _Found | None = None
        self.left = _MOST_OBJECTS
        self.seen: set[int] = set()

    def below(self, value: Any, at: _Found, depth: int) -> set[int]:
        """Those that a value is or holds; the innermost holder of enough is kept."""
        kind = type(value)
        if id(value) in self.wanted:
            held = {id(value)}
        elif kind in _PLAIN or id(value) in self.seen or depth > _DEPTH or self.left <= 0:
            return set()
        else:
            self.left -= 1
            self.seen.add(id(value))
            held = set()
            for inner, one in _inside(value, at):
                held |= self.below(one, inner, depth + 1)
        if self.found is None and len(held) >= self.least:
            self.found = at
        return held


def _variable(frame: FrameType, wanted: set[int], least: int) -> _Found | None:
    names = frame.f_locals
    search = _Search(wanted, least)
    search.seen.add(id(names))
    for name, value in list(names.items()):
        search.below(value, _Found(name), 0)
        if search.found is not None:
            break
    value = None
    # Before Python 3.13 these are a copy that the frame keeps, and with it what the variables held. Three hold it: the
    # frame, this function and the question; a fourth would be the script, which may keep its own locals().
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(names) is dict and sys.getrefcount(names) <= 3:
        names.clear()
    return search.found


def _inside(value: Any, at: _Found) -> Iterator[tuple[_Found, Any]]:
    """What a container holds, or an object's attributes, each with its name."""
    kind = type(value)
    bases = type.__dict__["__mro__"].__get__(kind)
    if dict in bases:
        for key, one in list(itertools.islice(dict.items(value), _MOST_OF_ONE)):
            named = f"{at.name}[{key!r}]" if type(key) in (str, int) else at.name
            yield _Found(named, at.owner, at.attribute), one
    elif any(base in bases for base in (list, tuple, set, deque)):
        yield from ((at, one) for one in _elements(value, bases))
    elif not _is_foreign(bases):
        for name, one in _attributes(value, bases):
            yield _Found(f"{at.name}.{name}", kind, name), one


def _elements(value: Any, bases: tuple[type, ...]) -> Iterable[Any]:
    newest = slice(-_MOST_OF_ONE, None)
    if list in bases:
        return list.__getitem__(value, newest)
    if tuple in bases:
        return tuple.__getitem__(value, newest)
    every = set.__iter__(value) if set in bases else deque.__iter__(value)
    return list(itertools.islice(every, _MOST_OF_ONE))


def _is_foreign(bases: tuple[type, ...]) -> bool:
    """Whether an object is a class, a module, or of a library's own class, which another may be built on."""
    if type in bases:
        return True
    module = type.__dict__["__dict__"].__get__(bases[0]).get("__module__", "builtins")
    return type(module) is not str or module.partition(".")[0] in _FOREIGN


def _attributes(value: Any, bases: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Attributes as Python keeps them: in the object's dictionary and in its slots."""
    for base in bases:
        own = type.__dict__["__dict__"].__get__(base)
        keeps = own.get("__dict__")
        inner = keeps.__get__(value) if type(keeps) is GetSetDescriptorType else None
        if type(inner) is dict:
            yield from [(name, one) for name, one in list(inner.items())[:_MOST_OF_ONE] if type(name) is str]
        for name, slot in list(own.items()) if base is not object else ():
            if type(slot) is MemberDescriptorType:
                try:
                    one = slot.__get__(value)
                except AttributeError:
                    continue  # not set yet
                yield name, one


def _place(found: _Found, code: CodeType, foreign: tuple[str, ...]) -> dict[str, Any]:
    """The line that adds to it: in the object's class, or in the function whose variable it is; else its first."""
    for method in _methods(found.owner) if found.owner is not None else ():
        file, own = file_of(method, foreign), method.co_varnames[:1]
        line = _line(method, f"{own[0]}.{found.attribute}") if file and own else 0
        if line:
            return {"function": method.co_name, "file": file, "line": line}
    line = _line(code, found.name) or code.co_firstlineno
    return {"function": code.co_name, "file": file_of(code, foreign), "line": line}


def _methods(owner: type) -> Iterator[CodeType]:
    for base in type.__dict__["__mro__"].__get__(owner):
        for one in list(type.__dict__["__dict__"].__get__(base).values()):
            if type(one) is FunctionType:
                yield one.__code__


def _line(code: CodeType, name: str) -> int:
    """The line of the function's text that adds to the variable; 0 where none does, or the text is not there."""
    last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
    spelt = re.escape(name).replace("'", "[\"']")
    adds = re.compile(rf"(?<![\w.]){spelt}" + _ADDS % spelt)
    for number in range(code.co_firstlineno, last + 1):
        if adds.search(linecache.getline(code.co_filename, number)):
            return number
    return 0
