"""How long the samples of a few batches are, as the loader gives them, and to which length they were padded.

The batch of the step whose lines are recorded says how long its longest sample is; others may be far shorter. Each of a
few batches after the windows is looked at for a millisecond at most.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

import torch

from ...guards.interrupts import let_through
from ...windows.lookups import padding

# Batches that are looked at; reading an index takes about 50 ns.
_MOST_BATCHES, _MOST_INDICES = 8, 20_000
# Containers within a batch, and tensors in all, that are looked into.
# Numbers below may as well be classes beside the channels of pictures.
_SHORTEST = 8
# Samples of a batch whose lengths are kept, and the fewest that tell something.
_MOST_SAMPLES, _FEWEST = 256, 2
_WHOLE = (torch.int64, torch.int32, torch.bool)
_DEEPEST, _MOST_TENSORS = 3, 16


class BatchPadding:
    """What the batches that were looked at tell.

    found    samples, length and longest sample of each, of each shape of indices in it
    lengths  of each whose samples are filled up to the longest of them, their lengths
    """

    def __init__(self) -> None:
        self.found: list[dict[str, int]] = []
        self.lengths: list[dict[str, Any]] = []
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
        tensors = list(islice(_tensors(batch, 0), _MOST_TENSORS))
        of_samples = next(filter(None, (_lengths(one, tensors) for one in tensors)), None)
        self.lengths += [of_samples] if of_samples else []
        for one in tensors:
            known = padding(one) if one.numel() <= _MOST_INDICES else None
            if known is not None:
                shape = (known["samples"], known["length"])
                longest[shape] = max(longest.get(shape, known), known, key=lambda found: found["longest"])
        self.found += longest.values()


def _lengths(one: torch.Tensor, beside: list[torch.Tensor]) -> dict[str, Any] | None:
    """The lengths of a batch's samples where this tensor tells them; None where it does not, or they are all equal.

    It holds one whole number for each sample, none above the length that another tensor of the batch has for all of
    them, and one as large. Or it is a mask of samples by positions, which says so from its beginning on.
    """
    if one.device.type != "cpu" or one.dtype not in _WHOLE or not 1 <= one.dim() <= 2 or len(one) > _MOST_SAMPLES:
        return None
    if one.dim() == 2:
        return _of_mask(one)
    lengths = one.tolist()
    if len(lengths) < _FEWEST or min(lengths) < 1 or min(lengths) == max(lengths) or max(lengths) < _SHORTEST:
        return None
    shapes = [tuple(each.shape[:2]) for each in beside if each.dim() > 1 and each is not one]
    held = any(shape in ((len(lengths), max(lengths)), (max(lengths), len(lengths))) for shape in shapes)
    return {"length": max(lengths), "lengths": lengths} if held else None


def _of_mask(mask: torch.Tensor) -> dict[str, Any] | None:
    samples, length = mask.shape
    if samples < _FEWEST or mask.numel() > _MOST_INDICES:
        return None
    rows = [list(map(int, row)) for row in mask.tolist()]
    kept = rows[0][0]  # every sample has a first position
    if kept not in (0, 1) or any(row != [kept] * row.count(kept) + [1 - kept] * row.count(1 - kept) for row in rows):
        return None
    lengths = [row.count(kept) for row in rows]
    uneven = max(lengths) == length and min(lengths) < length and min(lengths) > 0
    return {"length": length, "lengths": lengths} if uneven else None


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
