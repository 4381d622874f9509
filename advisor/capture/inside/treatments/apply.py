"""Applies the treatments that the controller named; whatever goes wrong is said, and the script goes on."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from .door import Door, Notes

# In this order: a model is compiled first, so that what wraps its call stays outside of the compiled region; what asks
# for a loader's arguments comes before what changes them, because the last one sees them first.
TREATMENTS: dict[str, tuple[str, str]] = {
    "seeds": ("seeds", "apply"),
    "compile": ("models", "compiled"),
    "channels_last": ("models", "channels_last"),
    "autocast": ("autocast", "apply"),
    "batch": ("batch", "apply"),
    "threads": ("threads", "apply"),
    "loader": ("loader", "apply"),
    "environment": ("variables", "check"),
    "matmul_precision": ("switches", "matmul_precision"),
    "cudnn": ("switches", "cudnn"),
    "attention": ("switches", "attention"),
    "optimizer": ("optimizers", "update"),
    "set_to_none": ("optimizers", "set_to_none"),
    "ddp": ("parallel", "apply"),
    "no_sync": ("no_sync", "apply"),
    "non_blocking": ("copies", "non_blocking"),
    "interval": ("interval", "apply"),
    "gc": ("collector", "apply"),
    "calls": ("calls", "apply"),
}


def apply(wanted: list[dict[str, Any]]) -> Notes:
    """wanted: `name` and `arguments` of each. Returns what they will have reached by the time it is read."""
    door = Door()
    by_name = sorted(wanted, key=lambda one: list(TREATMENTS).index(one["name"]) if one["name"] in TREATMENTS else -1)
    for one in by_name:
        if one["name"] not in TREATMENTS:
            door.notes.miss(f"there is no treatment {one['name']}")
            continue
        file, function = TREATMENTS[one["name"]]
        try:
            treat: Callable[[dict[str, Any], Door], None] = getattr(import_module(f".{file}", __package__), function)
            treat(dict(one.get("arguments", {})), door)
        except Exception as failure:
            door.notes.miss(f"{one['name']}: {type(failure).__name__}: {failure}")
    return door.notes
