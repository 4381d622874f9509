"""The losses of the first steps: what each backward pass starts from, where that is one number."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

_OURS = os.path.dirname(os.path.abspath(__file__))


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
        while frame is not None and frame.f_code.co_filename.startswith(_OURS):
            frame = frame.f_back
        # Others read the engine as well, within a pass: DistributedDataParallel with a static graph, and FSDP.
        if frame is None or frame.f_code.co_name != "_engine_run_backward":
            return
        outputs: tuple[Any, ...] = frame.f_locals.get("t_outputs") or ()
        if len(outputs) == 1 and getattr(outputs[0], "numel", lambda: 0)() == 1:
            # A copy: scripts scale and sum losses in place.
            self._kept.append(outputs[0].detach().clone())

    def as_text(self) -> list[str]:
        """Each as a hexadecimal float, which holds every bit."""
        return [float(loss).hex() for loss in self._kept]
