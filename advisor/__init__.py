"""Torch Advisor: profiles a PyTorch training script as it is and ranks what to change by the time it gives back.

`advisor.load(path)` reads a trace into a `Trace`; everything else for third parties is in `advisor.api`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["__version__", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Importing the package must cost nothing: numpy and pandas come with the first call.
    if name == "load":
        return import_module("advisor.trace.read.load").load
    raise AttributeError(f"module 'advisor' has no attribute '{name}'")
