"""Threads within an op (`torch.set_num_threads`), whatever the script sets."""

from __future__ import annotations

from typing import Any

import torch

from .door import Door
from .ignored import ignore


def apply(arguments: dict[str, Any], door: Door) -> None:
    """count: threads of the script's process. Loader workers keep the one thread that torch gives them."""
    count = int(arguments["count"])
    door.notes.reach(f"{count} instead of {torch.get_num_threads()} threads")
    torch.set_num_threads(count)
    ignore(torch, "set_num_threads", door)
