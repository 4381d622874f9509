"""Python's garbage collector during the loop."""

from __future__ import annotations

import atexit
import gc
from typing import Any

from .door import Door


def apply(arguments: dict[str, Any], door: Door) -> None:
    """freeze: what lives before the first forward is never visited again. threshold: of the youngest generation.
    enabled: False switches automatic collections off.
    """
    done: list[bool] = []

    def found(_model: Any) -> None:
        if done:
            return
        done.append(True)
        if arguments.get("freeze"):
            gc.collect()
            gc.freeze()
            atexit.register(gc.unfreeze)  # libraries that look for leaks at the end report what is frozen
        if "threshold" in arguments:
            gc.set_threshold(int(arguments["threshold"]))
        if arguments.get("enabled") is False:
            gc.disable()
        door.notes.reach("the garbage collector")

    door.on_model(found)
