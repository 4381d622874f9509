"""How many labels of a cross entropy are left out by `ignore_index`, in the step whose lines are recorded.

Which labels are ignored no trace tells. Labels are only held on to in that step, and counted when it is over and
nothing is timed or recorded.
"""

from __future__ import annotations

import contextlib
from types import FrameType
from typing import Any

import torch

# Losses of one step that are looked at; a loop of more is another problem.
_MOST_LOSSES = 32
_WHOLE = (torch.int64, torch.int32, torch.uint8)


class Labels:
    """Labels that cross entropies of a step were given, each with the index that is left out and the classes."""

    def __init__(self) -> None:
        self.held: list[tuple[Any, int, int]] = []
        self.found: list[dict[str, int]] = []
        self.cut = False

    def look(self, frame: FrameType) -> None:
        """Adds the labels of a loss that begins: a call of torch's own `cross_entropy`. Never raises."""
        with contextlib.suppress(Exception):  # the script's step must not end because of a look at its labels
            if frame.f_globals.get("__name__") != "torch.nn.functional":
                return
            local: dict[str, Any] = frame.f_locals
            scores, labels, ignored = local["input"], local["target"], local["ignore_index"]
            if type(labels) is not torch.Tensor or labels.dtype not in _WHOLE or not isinstance(ignored, int):
                return
            if len(self.held) < _MOST_LOSSES:
                # Classes are the second dimension of the scores, or the only one.
                self.held.append((labels, ignored, int(scores.shape[1 if scores.dim() > 1 else 0])))
            else:
                self.cut = True

    def record(self) -> list[dict[str, int]]:
        """What is counted of each loss, the first time, and lets its labels go. Empty after too many."""
        if self.held:
            held, self.held = self.held, []
            with contextlib.suppress(Exception):  # a device that is out of memory or gone
                self.found = [_counted(*one) for one in ([] if self.cut else held)]
        return self.found


def _counted(labels: torch.Tensor, ignored: int, classes: int) -> dict[str, int]:
    """{labels, ignored, classes}, and the largest label that counts."""
    left_out = labels == ignored
    found = {"labels": labels.numel(), "ignored": int(left_out.sum()), "classes": classes}
    kept = labels[~left_out]
    return found | ({"largest": int(kept.max())} if kept.numel() else {})
