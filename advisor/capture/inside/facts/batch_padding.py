"""How long the samples of a few batches are, as the loader gives them, and to which length they were padded.

The batch of the step whose lines are recorded says how long its longest sample is; others may be far shorter. Each of a
few batches after the windows is looked at for a millisecond at most.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from ..guards.interrupts import let_through
from ..windows.lookups import padding

# Batches that are looked at; reading an index takes about 50 ns.
_MOST_BATCHES, _MOST_INDICES = 8, 20_000
# Containers within a batch, and tensors in all, that are looked into.
_DEEPEST, _MOST_TENSORS = 3, 16


class BatchPadding:
    """found: samples, length and longest sample of each batch that was looked at, of each shape of indices in it."""

    def __init__(self) -> None:
        self.found: list[dict[str, int]] = []
        self.left = _MOST_BATCHES

    def look(self, iterator: Any) -> None:
        """A batch was made by this iterator, whose `__next__` is on the stack. Never raises."""
        if self.left <= 0:
            return
        self.left -= 1
        try:
            self._look(_batch(iterator, sys._getframe(1)))
        except Exception as failure:
            let_through(failure)
            self.left = 0  # a container of the script's own that cannot be looked into

    def _look(self, batch: Any) -> None:
        longest: dict[tuple[int, int], dict[str, int]] = {}
        for number, one in enumerate(_tensors(batch, 0)):
            if number >= _MOST_TENSORS:
                break
            known = padding(one) if one.numel() <= _MOST_INDICES else None
            if known is not None:
                shape = (known["samples"], known["length"])
                longest[shape] = max(longest.get(shape, known), known, key=lambda found: found["longest"])
        self.found += longest.values()


def _batch(iterator: Any, frame: FrameType | None) -> Any:
    """What `__next__` of the iterator is about to return; None where torch calls it otherwise."""
    while frame is not None and frame.f_code.co_name != "__next__":
        frame = frame.f_back
    mine = frame is not None and frame.f_locals.get("self") is iterator
    return frame.f_locals.get("data") if mine and frame is not None else None


def _tensors(batch: Any, depth: int) -> Iterator[torch.Tensor]:
    if type(batch) is torch.Tensor:
        yield batch
    elif depth < _DEEPEST and isinstance(batch, (dict, UserDict)):
        for one in (batch.data if isinstance(batch, UserDict) else batch).values():
            yield from _tensors(one, depth + 1)
    elif depth < _DEEPEST and type(batch) in (list, tuple):
        for one in batch[:_MOST_TENSORS]:
            yield from _tensors(one, depth + 1)
