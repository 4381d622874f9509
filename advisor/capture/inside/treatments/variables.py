"""Variables of the environment: they were set before the process started, and a script may set its own over them."""

from __future__ import annotations

import os
from typing import Any

from .door import Door


def check(arguments: dict[str, Any], door: Door) -> None:
    """arguments: names and values; None for those that were taken away."""

    def found(_model: Any) -> None:
        for name, value in arguments.items():
            if os.environ.get(name) == (None if value is None else str(value)):
                door.notes.reach(f"the variable {name}")
            else:
                door.notes.miss(f"{name}, which the script sets itself")

    door.on_model(found)
