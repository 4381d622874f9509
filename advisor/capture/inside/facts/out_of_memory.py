"""What the script ran out of memory with: the line that asked for more, and what held memory then.

Read when the interpreter ends: the exception that ended the script is known then, and the frames that its traceback
keeps still hold their tensors. Nothing is caught, and what the script printed stays as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

import torch

from ..guards.user_code import file_of, foreign_folders
from ..steps.vitals import memory
from . import probe

_WORDS = re.compile(r"out of memory|can't allocate memory|bad_alloc|ALLOC_FAILED", re.IGNORECASE)
_TRIED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|[KMG]iB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_LONGEST_CHAIN, _MOST_FRAMES, _MOST_VARIABLES, _MOST_ITEMS = 5, 50, 5, 10_000


def found(optimizers: list[Any], step: int) -> dict[str, Any] | None:
    """The keys of `record.OutOfMemory`; None where the script ended otherwise. optimizers: those alive."""
    failure = _failure(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))
    if failure is None:
        return None
    frames = list(_frames(failure.__traceback__))
    tried = _TRIED.search(str(failure))
    device = _device(failure)
    return {
        "step": step,
        "device": device,
        "tried_bytes": round(float(tried[1]) * _UNITS[tried[2].lower()]) if tried else None,
        **_place(frames),
        **memory(),
        **(probe.attempt(lambda: _holders(optimizers, frames, device)) or {}),
    }


def _failure(failure: Any) -> BaseException | None:
    """The failed allocation among an exception and its causes."""
    for _ in range(_LONGEST_CHAIN):
        if not isinstance(failure, Exception):
            return None
        named = isinstance(failure, MemoryError) or type(failure).__name__ == "OutOfMemoryError"
        if named or (isinstance(failure, RuntimeError) and _WORDS.search(str(failure))):
            return failure
        failure = failure.__cause__
    return None


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """The frames of a traceback, outermost first, each with the line that runs."""
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _device(failure: BaseException) -> str:
    """The type of the device whose memory ran out, by what the allocator says."""
    words = str(failure)
    on_host = isinstance(failure, MemoryError) or "CPUAllocator" in words or "bad_alloc" in words
    return "cuda" if torch.cuda.is_initialized() and not on_host else "cpu"


def _place(frames: list[tuple[FrameType, int]]) -> dict[str, Any]:
    """The innermost line of the user's code; empty where none is known."""
    foreign = foreign_folders()
    for frame, line in reversed(frames):
        file = file_of(frame.f_code, foreign)
        if file:
            return {"file": file, "line": line, "function": frame.f_code.co_name}
    return {}


def _holders(optimizers: list[Any], frames: list[tuple[FrameType, int]], device: str) -> dict[str, Any]:
    """Bytes of weights, gradients, optimizer state, and of the largest variables of the user's functions besides."""
    seen: set[int] = set()
    params = probe.parameters_of(optimizers)
    state = [one for optimizer in optimizers for held in optimizer.state.values() for one in held.values()]
    sizes = {
        "weights_bytes": _size(params, device, seen),
        "gradients_bytes": _size([param.grad for param in params], device, seen),
        "state_bytes": _size(state, device, seen),
    }
    foreign = foreign_folders()
    variables: list[dict[str, Any]] = []
    for frame, _ in reversed(frames[-_MOST_FRAMES:]):
        if file_of(frame.f_code, foreign):
            for name, value in list(frame.f_locals.items()):
                size = _size(_tensors(value), device, seen)
                variables.append({"name": name, "function": frame.f_code.co_name, "bytes": size})
    variables.sort(key=lambda one: int(one["bytes"]), reverse=True)
    return sizes | {"variables": [one for one in variables[:_MOST_VARIABLES] if one["bytes"]]}


def _tensors(value: Any) -> list[Any]:
    """The tensors that a variable is, or holds as items."""
    if isinstance(value, dict):
        return list(value.values())[:_MOST_ITEMS]
    return list(value[:_MOST_ITEMS]) if type(value) in (list, tuple) else [value]


def _size(values: Iterable[Any], device: str, seen: set[int]) -> int:
    """Bytes of the memory behind tensors of that device; what was counted before counts no more."""
    total = 0
    for one in values:
        if not isinstance(one, torch.Tensor) or one.device.type != device:
            continue
        held = one.untyped_storage()
        if held.data_ptr() not in seen:
            seen.add(held.data_ptr())
            total += held.nbytes()
    return total
