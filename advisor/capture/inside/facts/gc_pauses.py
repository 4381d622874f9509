"""Pauses of Python's garbage collector, noted in C from end to end.

A signal that arrives during a collection waits for the next Python to run. Were that a function of ours, Python would
drop what the handler raises, as it drops all exceptions of the collector's callbacks, and Ctrl-C would be lost. So the
callback is built of callables that Python does not have to interpret.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any


class _Ticks(map):  # type: ignore[type-arg]  # one turn of it notes the time
    """Setting `start` or `stop`, the collector's words for its ends, takes the next turn."""

    start = property(None, next)
    stop = property(None, next)


class GcPauses:
    """What the collector took while it was listened to."""

    def __init__(self) -> None:
        self.on = False
        self.ends_ns: list[int] = []
        self.heard: Callable[..., Any] = partial(setattr, _Ticks(self.ends_ns.append, iter(perf_counter_ns, None)))

    def listen(self, on: bool) -> None:
        """Begins or ends to listen."""
        if on and not self.on:
            gc.callbacks.append(self.heard)
        elif self.on and not on and self.heard in gc.callbacks:
            gc.callbacks.remove(self.heard)
        self.on = on

    def us(self) -> list[float]:
        """The pauses so far, µs."""
        starts, stops = self.ends_ns[::2], self.ends_ns[1::2]
        return [(stop - start) / 1e3 for start, stop in zip(starts, stops, strict=False)]
