"""A callable that runs only every few times: a checkpoint, an evaluation."""

from __future__ import annotations

import functools
import sys
from typing import Any

from .door import Door


def apply(arguments: dict[str, Any], door: Door) -> None:
    """name: `torch.save`, a function of the script (`evaluate`) or a method (`Trainer.evaluate`); every: N.

    A call that is skipped returns what the last one did. Functions of the script are found at the first forward.
    """
    name, every = str(arguments["name"]), int(arguments["every"])
    if _wrap(name, every, door):
        return
    tried: list[bool] = []

    def found(_model: Any) -> None:
        if not tried and not _wrap(name, every, door):
            door.notes.miss(f"{name}, which is not a function of torch or of the script")
        tried.append(True)

    door.on_model(found)


def _wrap(name: str, every: int, door: Door) -> bool:
    """Whether there is such a callable; from now on it runs in one of `every` calls."""
    *places, last = name.split(".")
    owner: Any = sys.modules.get(places[0]) if places else None
    # `evaluate` and `Trainer.evaluate` lie in the script, `lib.evaluate` in a module.
    if owner is not None:
        places = places[1:]
    else:
        owner = sys.modules["__main__"]
    for place in places:
        owner = getattr(owner, place, None)
    original = getattr(owner, last, None)
    if not callable(original):
        return False
    calls, answer = 0, None

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls, answer
        calls += 1
        if (calls - 1) % every == 0:
            answer = original(*args, **kwargs)
        elif every > 1:
            door.notes.reach(f"{name}() runs in one of {every} calls")
        return answer

    setattr(owner, last, call)
    return True
