"""Whether a loop over batches that nothing is trained on records graphs: what variables of it hold, turn for turn.

Ops record a graph where gradients are enabled; what they return then has a `grad_fn`. A variable that holds another
such tensor after each batch is proof that this loop computes it so.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

import torch

from ...guards.interrupts import let_through
from ...guards.user_code import file_of, foreign_folders

# Loops that are looked into, each after its first and its second batch.
_MOST_LOOKS = 20
# References to a frame's copy of its variables: the frame's, a variable here, and the argument of the question.
_OURS = 3
_AFTER = (2, 3)  # batches that were handed over by then


class EvaluationGraphs:
    """found: for each iterator of such a loop where that is, and the variable."""

    def __init__(self) -> None:
        self.found: dict[int, dict[str, Any]] = {}
        self.left = _MOST_LOOKS
        self.last: tuple[int, dict[str, int]] = 0, {}

    def wants(self, given: int) -> bool:
        """Whether an iterator that has handed over so many batches is to be looked at."""
        return self.left > 0 and given in _AFTER

    def look(self, iterator: Any, serial: int) -> None:
        """The iterator, whose `__next__` is on the stack, hands over a batch. Never raises."""
        self.left -= 1
        try:
            frame = _loop(iterator, sys._getframe(1))
            held = _held(frame) if frame is not None else {}
            before = self.last[1] if self.last[0] == serial else {}
            other = [name for name, one in held.items() if before.get(name, one) != one]
            if frame is not None and other:
                self.found[serial] = _place(frame) | {"name": other[0]}
            self.last = serial, held
        except Exception as failure:
            let_through(failure)
            self.left = 0

    def record(self, trained: set[int]) -> dict[str, Any] | None:
        """The first loop whose batches were not trained on later, either."""
        return next((one for serial, one in self.found.items() if serial not in trained), None)


def _loop(iterator: Any, frame: FrameType | None) -> FrameType | None:
    """The script's frame that asks the iterator for a batch."""
    while frame is not None and not (frame.f_code.co_name == "__next__" and _self(frame) is iterator):
        frame = frame.f_back
    foreign = foreign_folders()
    while frame is not None and not file_of(frame.f_code, foreign):
        frame = frame.f_back
    return frame


def _self(frame: FrameType) -> Any:
    return frame.f_locals.get("self")


def _held(frame: FrameType) -> dict[str, int]:
    """Variables that hold a result with a graph, with its id; none where gradients of inputs are wanted."""
    names = frame.f_locals
    held: dict[str, int] = {}
    wanted = False
    for name, value in list(names.items()):
        if type(value) is torch.Tensor:
            wanted |= value.is_leaf and value.requires_grad
            if value.grad_fn is not None:
                held[name] = id(value)
    # Before Python 3.13 a function's variables are copied, and the copy would keep their objects until it returns. A
    # script that has asked for `locals()` may hold that copy: the frame and this variable are not alone then.
    alone = sys.getrefcount(names) <= _OURS
    if sys.version_info < (3, 13) and alone and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        names.clear()
    return {} if wanted else held


def _place(frame: FrameType) -> dict[str, Any]:
    code = frame.f_code
    return {
        "file": file_of(code, foreign_folders()),
        "line": frame.f_lineno or code.co_firstlineno,
        "first": code.co_firstlineno,
        "function": code.co_name,
    }
