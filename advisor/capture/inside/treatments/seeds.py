"""Random numbers that start alike in both processes of a pair, or otherwise on purpose."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from .door import Door


def apply(arguments: dict[str, Any], _door: Door) -> None:
    """value: the seed until the script sets its own. shift: is added to each seed that the script sets."""
    value, shift = int(arguments.get("value", 0)), int(arguments.get("shift", 0))
    numpy = sys.modules.get("numpy")  # torch has imported it where there is one
    random.seed(value + shift)
    torch.manual_seed(value + shift)
    if numpy is not None:
        numpy.random.seed(value + shift)
    if shift:
        _shift(random, "seed", shift)
        _shift(torch, "manual_seed", shift)
        torch.random.manual_seed = torch.manual_seed
        if numpy is not None:
            _shift(numpy.random, "seed", shift)


def _shift(module: Any, name: str, shift: int) -> None:
    original = getattr(module, name)

    def seed(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], int):
            args = ((args[0] + shift) % 2**32, *args[1:])
        return original(*args, **kwargs)

    setattr(module, name, seed)
