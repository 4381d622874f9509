"""Switches of torch's back ends, whatever the script sets: precision of products, cuDNN's search, attention."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.backends.cuda
import torch.backends.cudnn

from .door import Door
from .ignored import ignore


def matmul_precision(arguments: dict[str, Any], door: Door) -> None:
    """precision: of `torch.set_float32_matmul_precision`."""
    precision, switch = arguments["precision"], torch.set_float32_matmul_precision
    # `torch.backends.cuda.matmul.allow_tf32` sets it, too.
    _keep(door, lambda: switch(precision))
    ignore(torch, "set_float32_matmul_precision", door)
    door.notes.reach("torch.set_float32_matmul_precision")


def cudnn(arguments: dict[str, Any], door: Door) -> None:
    """benchmark, deterministic, allow_tf32: of `torch.backends.cudnn`."""
    if not torch.backends.cudnn.is_available():
        door.notes.miss("cuDNN, which is not there")
        return

    def set_all() -> None:
        for name, value in arguments.items():
            setattr(torch.backends.cudnn, name, value)

    _keep(door, set_all)
    door.notes.reach("torch.backends.cudnn")


def attention(arguments: dict[str, Any], door: Door) -> None:
    """flash, mem_efficient, math, cudnn: which back ends `scaled_dot_product_attention` may choose."""
    for name, allowed in arguments.items():
        switch: Callable[[bool], None] | None = getattr(torch.backends.cuda, f"enable_{name}_sdp", None)
        if switch is None:
            door.notes.miss(f"{name} attention, which this torch does not have")
        else:
            _keep(door, functools.partial(switch, bool(allowed)))
            door.notes.reach("scaled_dot_product_attention")


def _keep(door: Door, switch: Callable[[], None]) -> None:
    """Now, and again before each model's first forward: a script may set its own meanwhile."""
    switch()
    door.on_model(lambda _model: switch())
