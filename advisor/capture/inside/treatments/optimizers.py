"""How optimizers update parameters and drop gradients."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.optim import Optimizer

from .constructors import change
from .door import Door


def update(arguments: dict[str, Any], door: Door) -> None:
    """fused or foreach: the way of `torch.optim`'s optimizers, those that have it."""
    other = {"fused": "foreach", "foreach": "fused"}
    kinds = {one for one in vars(torch.optim).values() if isinstance(one, type) and issubclass(one, Optimizer)}
    able = {one for one in kinds if one is not Optimizer and set(arguments) <= set(inspect.signature(one).parameters)}

    def edit(_optimizer: Any, given: dict[str, Any]) -> None:
        given.update(arguments)
        for name in arguments:
            given.pop(other[name], None)  # torch refuses both

    def made(optimizer: Any, _given: dict[str, Any]) -> None:
        name = type(optimizer).__name__
        if isinstance(optimizer, tuple(able)):
            door.notes.reach(name)
        else:
            door.notes.miss(f"{name}, which has no {' and no '.join(arguments)} update")

    # A class whose base is one of them would be changed twice, to the same end.
    for kind in able:
        change(kind, edit)
    change(Optimizer, made)


def set_to_none(_arguments: dict[str, Any], door: Door) -> None:
    """`zero_grad()` drops gradients, whatever the script asks for."""
    kind: Any = Optimizer
    original = kind.zero_grad

    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        if not set_to_none:
            door.notes.reach(f"zero_grad(set_to_none=False) of {type(self).__name__}")
        original(self, set_to_none=True)

    kind.zero_grad = zero_grad
