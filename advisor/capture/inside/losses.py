"""The losses of the first steps: what each backward pass starts from, where that is one number."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

# Frames between the read of the engine and the function that holds the losses.
_NEAR = 8


class Losses:
    """Keeps them on their device: reading one would make the host wait for it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: list[Any] = []

    def begins(self) -> None:
        """A backward pass begins, in a frame around this one."""
        if len(self._kept) >= self.most:
            return
        frame: FrameType | None = sys._getframe(1)
        for _ in range(_NEAR):
            if frame is None:
                return
            if frame.f_code.co_name == "_engine_run_backward":
                outputs: tuple[Any, ...] = frame.f_locals.get("t_outputs") or ()
                if len(outputs) == 1 and getattr(outputs[0], "numel", lambda: 0)() == 1:
                    # A copy: scripts scale and sum losses in place.
                    self._kept.append(outputs[0].detach().clone())
                return
            frame = frame.f_back

    def as_text(self) -> list[str]:
        """Each as a hexadecimal float, which holds every bit."""
        return [float(loss).hex() for loss in self._kept]
