"""All objects that Python's collector knows, and those that the script has frozen, as far as variables reach them.

`gc.freeze()` takes what is alive off the lists that `gc.get_objects` reads, and weights with it; only `gc.unfreeze()`
would bring them back, and change what the script chose.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from ..guards.thread_frames import thread_frames
from ..guards.user_code import file_of, foreign_folders

# Objects that are looked at on the way to frozen ones: 0.15 s of CPU time (200,000 dicts that hold lists and tuples, on
# one core of a server CPU, Python 3.11, median of 5).
_MOST = 300_000
# What these refer to is code, and all of it refers to the globals of its module.
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType, type)


def live_objects() -> list[Any]:
    """Objects that may hold others: containers, tensors, modules."""
    found = gc.get_objects()
    return found + _frozen({id(one) for one in found}) if gc.get_freeze_count() else found


def _frozen(known: set[int]) -> list[Any]:
    """Tracked objects besides the known ones that variables of the user's running functions hold, directly or not."""
    found: list[Any] = []
    seen: set[int] = set()
    left = deque[Any](_variables())
    while left and len(seen) < _MOST:
        for one in gc.get_referents(left.popleft()):
            if id(one) in seen or issubclass(type(one), _CODE) or not gc.is_tracked(one):
                continue
            seen.add(id(one))
            left.append(one)
            if id(one) not in known:
                found.append(one)
    return found


def _variables() -> Iterator[dict[str, Any]]:
    """Those of the functions of the user's that run, and of their modules. None of our own: they hold what is found."""
    foreign = foreign_folders()
    for frame in thread_frames().values():
        around: FrameType | None = frame
        while around is not None:
            if file_of(around.f_code, foreign):
                yield around.f_locals
                yield around.f_globals
            around = around.f_back
