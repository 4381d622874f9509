"""Which framework turns the training loop, or makes a loader: the one whose code stands on the stack there."""

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
    return of_frames(sys._getframe(1))


def of_frames(frame: FrameType | None, until: FrameType | None = None) -> str | None:
    """The framework whose code runs in this frame or in one around it, as far as one that does not count."""
    names = set()
    while frame is not None and frame is not until:
        names.add(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return next((loop for loop, begins in _LOOPS if any(name.startswith(begins) for name in names)), None)
