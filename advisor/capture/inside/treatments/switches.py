"""Switches of torch's back ends, whatever the script sets: precision of products, cuDNN's search, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.backends.cuda
import torch.backends.cudnn

from .door import Door
from .ignored import ignore


def matmul_precision(arguments: dict[str, Any], door: Door) -> None:
    """precision: of `torch.set_float32_matmul_precision`."""
    torch.set_float32_matmul_precision(arguments["precision"])
    ignore(torch, "set_float32_matmul_precision", door)
    door.notes.reach("torch.set_float32_matmul_precision")


def cudnn(arguments: dict[str, Any], door: Door) -> None:
    """benchmark, deterministic, allow_tf32: of `torch.backends.cudnn`, set again before each model's first forward."""
    if not torch.backends.cudnn.is_available():
        door.notes.miss("cuDNN, which is not there")
        return

    def set_all() -> None:
        for name, value in arguments.items():
            setattr(torch.backends.cudnn, name, value)

    set_all()
    door.on_model(lambda _model: set_all())
    door.notes.reach("torch.backends.cudnn")


def attention(arguments: dict[str, Any], door: Door) -> None:
    """flash, mem_efficient, math, cudnn: which back ends `scaled_dot_product_attention` may choose."""
    for name, allowed in arguments.items():
        switch: Callable[[bool], None] | None = getattr(torch.backends.cuda, f"enable_{name}_sdp", None)
        if switch is None:
            door.notes.miss(f"{name} attention, which this torch does not have")
        else:
            switch(bool(allowed))
            door.notes.reach("scaled_dot_product_attention")
