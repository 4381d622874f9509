"""Masks of tokens by tokens that modules hold as their forward ends, in the step whose lines are recorded.

What stands in a mask no trace tells. Tensors are only held on to in that step, and read when it is over and nothing is
timed or recorded: whether each lets a token see exactly the tokens before it and itself.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

# Shorter masks leave out little; longer ones than this take tens of milliseconds and as many megabytes to read.
_LEAST_TOKENS, _MOST_TOKENS = 256, 4096
# Different masks that are held. A model with more of them (one for each layer) is looked at in part: nothing is said.
_MOST_MASKS = 64
# What is added to a score so that nothing is left of it: the least number of the type, or some large one.
_GONE = -1e4
_DTYPES = (torch.bool, torch.uint8, torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Masks:
    """Tensors that may be masks, by the place of their first element in memory and their size."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], Any] = {}
        self.found: list[dict[str, Any]] | None = None

    def look(self, module: Any, local: dict[str, Any]) -> None:
        """Adds what a module has and what its `forward` holds as it ends. Never raises."""
        with contextlib.suppress(Exception):  # the script's step must not end because of a look at its tensors
            own = vars(module)
            for one in (*own.get("_buffers", {}).values(), *own.values(), *local.values()):
                if type(one) is torch.Tensor and _may_be(one) and len(self.held) <= _MOST_MASKS:
                    self.held.setdefault((one.data_ptr(), one.shape[-1]), one)

    def record(self) -> list[dict[str, Any]]:
        """{tokens, form} of each; reads them the first time, and lets them go. Empty where there were too many."""
        if self.found is None:
            self.found = []
            held, self.held = list(self.held.values()), {}
            if len(held) <= _MOST_MASKS:
                with contextlib.suppress(Exception):  # a device that is out of memory or gone
                    self.found = [{"tokens": int(one.shape[-1]), "form": form(one)} for one in held]
        return self.found


def _may_be(one: Any) -> bool:
    """Whether a tensor is one matrix of as many rows as columns, the same for all sequences and heads."""
    if one.dim() < 2 or one.dtype not in _DTYPES or one.requires_grad or one.layout is not torch.strided:
        return False
    *before, rows, columns = one.shape
    return rows == columns and _LEAST_TOKENS <= rows <= _MOST_TOKENS and all(size == 1 for size in before)


def form(mask: Any) -> str:
    """How a mask says what `is_causal=True` says: seen (1 for the tokens before and the token itself), hidden (0 for
    them), added (0 for them, for others a number that leaves nothing of a score); other, where it says something else.
    """
    with torch.no_grad():
        one = mask.detach().reshape(mask.shape[-2:]).cpu()
        before = torch.ones(one.shape, dtype=torch.bool).tril()
        if one.dtype not in (torch.bool, torch.uint8):
            added = bool((one[before] == 0).all()) and bool((one[~before] <= _GONE).all())
            return "added" if added else "other"
        seen = one.bool()
        return "seen" if torch.equal(seen, before) else "hidden" if torch.equal(seen, ~before) else "other"
