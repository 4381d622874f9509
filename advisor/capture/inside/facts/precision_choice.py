"""Choices that leave no trace: a switch set to the value that it had anyway.

torch's own functions read a setter of `torch._C` and call it. The module gets those names as properties: who reads
one is noted, and gets what he would have got, so that no frame of ours is on the stack while it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import torch
import torch.backends.cuda

# Setters of the precision of fp32 matrix products, in all versions of torch.
_PRECISION = ("_set_float32_matmul_precision", "_set_cublas_allow_tf32", "_set_fp32_precision_setter")


def watch_precision(chosen: Callable[[], None]) -> Callable[[], None]:
    """chosen(): the script sets the precision of fp32 matrix products. Returns the function that ends the watch."""
    setters = _setters()
    native: Any = torch._C

    def reader(name: str) -> Any:
        def read(module: Any) -> Any:
            # torch.compile reads all names of this module, too: only torch's own setters count.
            if sys._getframe(1).f_code in setters:
                chosen()
            return vars(module)[name]

        def write(module: Any, value: Any) -> None:
            vars(module)[name] = value

        return property(read, write)

    names = {name: reader(name) for name in _PRECISION if hasattr(native, name)}
    if type(native) is not ModuleType:
        return lambda: None
    native.__class__ = type("module", (ModuleType,), {**names, "__module__": "builtins"})

    def end() -> None:
        native.__class__ = ModuleType

    return end


def _setters() -> set[CodeType]:
    """Code of the functions through which a script sets the precision."""
    inner = getattr(torch.backends, "_set_fp32_precision_setter", None)
    found = [
        torch.set_float32_matmul_precision,
        torch.backends.cuda.cuBLASModule.__setattr__,
        inner("generic", "all") if inner is not None else None,
    ]
    return {one.__code__ for one in found if hasattr(one, "__code__")}
