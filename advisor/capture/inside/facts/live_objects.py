"""All objects that Python's collector knows, and those that the script has frozen, as far as variables reach them.

`gc.freeze()` takes what is alive off the lists that `gc.get_objects` reads, and weights with it; only `gc.unfreeze()`
would bring them back, and change what the script chose. Standard library only.
"""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

# Objects that are looked at on the way to frozen ones, some 0.5 µs each.
_MOST = 300_000
# What these refer to is code, and all of it refers to the globals of its module.
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType, type)


def live_objects() -> list[Any]:
    """Objects that may hold others: containers, tensors, modules."""
    found = gc.get_objects()
    return found + _frozen({id(one) for one in found}) if gc.get_freeze_count() else found


def _frozen(known: set[int]) -> list[Any]:
    """Tracked objects besides the known ones that the variables of running functions hold, directly or not."""
    found: list[Any] = []
    seen: set[int] = set()
    layer: list[Any] = [variables for frame in sys._current_frames().values() for variables in _variables(frame)]
    while layer and len(seen) < _MOST:
        after = []
        for one in gc.get_referents(*layer):
            if id(one) in seen or issubclass(type(one), _CODE) or not gc.is_tracked(one):
                continue
            seen.add(id(one))
            after.append(one)
            if id(one) not in known:
                found.append(one)
        layer = after
    return found


def _variables(frame: FrameType | None) -> list[dict[str, Any]]:
    found = []
    while frame is not None:
        found += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    return found
