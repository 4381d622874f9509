"""Torch Advisor: profiles unmodified PyTorch training scripts and ranks what to change by the time it saves.

`advisor.load(path)` reads a trace into a `Trace`, `advisor.profile()` profiles a block of code or a notebook cell;
everything else for third parties is in `advisor.api`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["__version__", "load", "load_ipython_extension", "profile"]
__version__ = "0.1.0"

_LAZY = {
    "load": ("advisor.trace.read.load", "load"),
    "profile": ("advisor.library.profile", "profile"),
    "load_ipython_extension": ("advisor.library.magic", "load"),
}


def __getattr__(name: str) -> Any:
    # Importing the package must cost nothing: numpy and pandas come with the first call.
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'advisor' has no attribute '{name}'")
