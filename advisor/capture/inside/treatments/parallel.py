"""Arguments of DistributedDataParallel, on every rank."""

from __future__ import annotations

from typing import Any

from torch.nn.parallel import DistributedDataParallel

from .constructors import change
from .door import Door


def apply(arguments: dict[str, Any], door: Door) -> None:
    """arguments: of `DistributedDataParallel`, in place of those that the script gives."""

    def edit(_module: Any, given: dict[str, Any]) -> None:
        given.update(arguments)
        door.notes.reach("DistributedDataParallel")

    change(DistributedDataParallel, edit)
