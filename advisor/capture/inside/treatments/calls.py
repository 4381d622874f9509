"""Calls of the script that are left out: `calls` with `names`, each one of those below."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import torch

from .door import Door
from .ignored import ignore

# What a call is replaced by: its answer, where the script may read one.
_ANSWERS: dict[str, Callable[[], Any]] = {
    "gc.collect": lambda: 0,
    "torch.autograd.detect_anomaly": contextlib.nullcontext,
    "torch.autograd.gradcheck": lambda: True,
    "torch.autograd.profiler.emit_nvtx": contextlib.nullcontext,
    "torch.autograd.set_detect_anomaly": contextlib.nullcontext,
    "torch.cuda.empty_cache": lambda: None,
    "torch.cuda.set_sync_debug_mode": lambda: None,
    "torch.cuda.synchronize": lambda: None,
    "torch.set_default_dtype": lambda: None,
    "torch.set_deterministic_debug_mode": lambda: None,
    "torch.set_num_threads": lambda: None,
    "torch.use_deterministic_algorithms": lambda: None,
}
# Options of trainers (`detect_anomaly=True` of Lightning, `full_determinism=True` of Transformers).
_OF_TRAINERS = (
    "torch.autograd.detect_anomaly",
    "torch.autograd.set_detect_anomaly",
    "torch.use_deterministic_algorithms",
)
_MODULES: dict[str, Any] = {
    "gc": gc,
    "torch": torch,
    "torch.autograd": torch.autograd,
    "torch.autograd.profiler": torch.autograd.profiler,
    "torch.cuda": torch.cuda,
}


def apply(arguments: dict[str, Any], door: Door) -> None:
    """names: the functions that the user's code, or a trainer by an option, calls without effect."""
    for name in arguments["names"]:
        place, _, function = name.rpartition(".")
        ignore(_MODULES[place], function, door, _ANSWERS[name], packages=name in _OF_TRAINERS)
