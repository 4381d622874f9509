"""Copies from the host to the device that the host does not wait for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from .door import Door


def non_blocking(_arguments: dict[str, Any], door: Door) -> None:
    """`Tensor.to` and `Tensor.cuda` of the user's code, from the host to a device; other copies would be unsafe."""
    for name in ("to", "cuda"):
        setattr(torch.Tensor, name, _without_waiting(getattr(torch.Tensor, name), name, door))


def _without_waiting(original: Callable[..., Any], name: str, door: Door) -> Callable[..., Any]:
    pinned: list[bool] = []

    def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        given = "non_blocking" in kwargs or any(isinstance(one, bool) for one in args)
        if given or tensor.device.type != "cpu" or not door.from_user(sys._getframe(1)):
            return original(tensor, *args, **kwargs)
        copy = original(tensor, *args, non_blocking=True, **kwargs)
        if copy.device.type != "cpu" and not pinned:
            pinned.append(tensor.is_pinned())
            door.notes.reach(f"copies to the device by .{name}()")
            if not pinned[0]:
                door.notes.miss("memory that is not pinned: its copies block anyway; add loader:pin_memory=True")
        return copy

    return call
