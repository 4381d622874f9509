"""Which framework turns the training loop: the one whose code stands on the stack where an iteration ends."""

from __future__ import annotations

import sys
from types import FrameType

# Modules by their beginning. Transformers' Trainer is built upon accelerate, and comes before it.
_LOOPS = (
    ("lightning", ("lightning.pytorch.", "pytorch_lightning.")),
    ("transformers", ("transformers.trainer",)),
    ("accelerate", ("accelerate.",)),
)


def of_the_loop() -> str | None:
    """lightning | transformers | accelerate, by this thread's stack; None where the script turns the loop itself."""
    names = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        names.add(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return next((loop for loop, begins in _LOOPS if any(name.startswith(begins) for name in names)), None)
