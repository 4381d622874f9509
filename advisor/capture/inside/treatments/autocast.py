"""Mixed precision: autocast from a model's forward to the backward pass, so that it covers the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from .door import Door, wrap_call


def apply(arguments: dict[str, Any], door: Door) -> None:
    """dtype: the format of the ops that autocast lowers (bfloat16)."""
    region = _Region(getattr(torch, arguments.get("dtype", "bfloat16")))

    def found(model: Any) -> None:
        weight = next(model.parameters())
        device = weight.device.type
        if torch.is_autocast_enabled(device):
            door.notes.miss(f"{type(model).__name__}, which already runs under autocast")
            return
        if region.dtype is torch.float16:
            door.notes.miss("loss scaling (torch.amp.GradScaler): without it, small gradients underflow to 0")
        # What a model returns may reach one outside of the region, which takes its own format only.
        back = weight.dtype if weight.dtype is not region.dtype else None
        wrap_call(model, lambda call, args, kwargs: _in(back, region.dtype, region.call(device, call, args, kwargs)))
        door.notes.reach(f"{type(model).__name__} and what follows it up to the backward pass")

    door.on_model(found)
    door.on_backward(region.leave)


def _in(back: Any, dtype: Any, returned: Any) -> Any:
    """What a model returns, its tensors of `dtype` in the format `back` (None: as they are)."""
    if back is None:
        return returned
    return tree_map(lambda one: one.to(back) if isinstance(one, torch.Tensor) and one.dtype is dtype else one, returned)


class _Region:
    """The autocast region of a step: open from the first forward that records gradients to the backward pass."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.open: Any = None

    def call(self, device: str, call: Any, args: Any, kwargs: Any) -> Any:
        """The model's forward inside the region; one that records no gradients gets a region of its own."""
        if not torch.is_grad_enabled():
            with torch.autocast(device, self.dtype):
                return call(*args, **kwargs)
        if self.open is None:
            self.open = torch.autocast(device, self.dtype)
            self.open.__enter__()
        return call(*args, **kwargs)

    def leave(self) -> None:
        """A backward pass begins: the forward and the loss are over."""
        if self.open is not None:
            opened, self.open = self.open, None
            opened.__exit__(None, None, None)
