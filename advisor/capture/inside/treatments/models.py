"""Changes of a model before its first forward: compiled, or in channels-last layout."""

from __future__ import annotations

from typing import Any

import torch

from .door import Door, wrap_call

_IMAGES = 4  # dimensions of a batch of images


def compiled(arguments: dict[str, Any], door: Door) -> None:
    """arguments: of `torch.compile`."""

    def found(model: Any) -> None:
        name = type(model).__name__
        if any(_is_compiled(module) for module in model.modules()):
            door.notes.miss(f"{name}, which is already compiled")
        elif not hasattr(torch.nn.Module, "compile"):
            door.notes.miss(f"{name}: this torch cannot compile a module in place")
        else:
            torch.nn.Module.compile(model, **arguments)
            door.notes.reach(name)

    door.on_model(found)


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"


def channels_last(_arguments: dict[str, Any], door: Door) -> None:
    """Weights once, and each batch of images as it reaches the model."""

    def found(model: Any) -> None:
        if not any(isinstance(module, torch.nn.Conv2d) for module in model.modules()):
            door.notes.miss(f"{type(model).__name__}, which has no 2-D convolution")
            return
        model.to(memory_format=torch.channels_last)
        wrap_call(model, lambda call, args, kwargs: call(*map(_converted, args), **kwargs))
        door.notes.reach(type(model).__name__)

    door.on_model(found)


def _converted(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dim() == _IMAGES:
        return value.contiguous(memory_format=torch.channels_last)
    return value
