"""Functions of torch and Python that do nothing when the user's code calls them; torch's own calls go through."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .door import Door


def ignore(module: Any, name: str, door: Door, instead: Callable[[], Any] = lambda: None) -> None:
    """From now on `module.name`, called by the user's code, only answers instead()."""
    original = getattr(module, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not door.from_user(sys._getframe(1)):
            return original(*args, **kwargs)
        door.notes.reach(f"calls of {name}() do nothing")
        return instead()

    setattr(module, name, call)
