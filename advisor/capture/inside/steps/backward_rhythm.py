"""Loops that update their weights by hand: no loader and no optimizer, only backward passes in a rhythm."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

import torch

from ..facts.model import model_facts
from .tracker import Tracker

# Backward passes of one line, in a process in which no optimizer is alive and no loader has given a batch, after which
# neither is expected. Fewer may be a warm-up before the training; passes over parts of a batch have an optimizer.
PASSES = 8

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_AUTOGRAD = os.path.join(_TORCH, "autograd", "__init__.py")

Line = tuple[CodeType, int]


class BackwardRhythm:
    """Tells the tracker which backward passes begin a step: those of the line that calls most of them."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.possible = True
        self.lines: dict[Line, int] = {}
        self.line: Line | None = None

    def passed(self) -> None:
        """A backward pass begins on the loop's thread."""
        if self.tracker.source == "backward":
            if _line() == self.line:
                self.tracker.stepped_by_hand()
        elif self.possible and self.tracker.unled:
            self._counted(_line())

    def _counted(self, line: Line | None) -> None:
        if line is None:
            return
        seen = self.lines[line] = self.lines.get(line, 0) + 1
        if seen < PASSES:
            return
        self.lines.clear()
        self.possible = False
        if not model_facts.find().optimizers:
            self.line = line
            self.tracker.settle_by_hand(seen - 1)


def _line() -> Line | None:
    """The line outside torch that called backward(); None for passes that something in torch asked for."""
    frame: FrameType | None = sys._getframe(1)
    called = False
    while frame is not None and (frame.f_code.co_filename.startswith((_OURS, _TORCH))):
        code = frame.f_code
        called = called or (code.co_name == "backward" and code.co_filename == _AUTOGRAD)
        frame = frame.f_back
    return (frame.f_code, frame.f_lineno) if called and frame is not None else None
