"""Buffers that DistributedDataParallel copies from rank 0 before each forward pass, and whether they change.

torch restores a tensor's count of writes after it has copied into it (`_sync_buffers`), so that count tells of writes
by the model. Batch norm's own op and writes through `.data` do not count, so some numbers of each buffer are compared.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

# Buffers that are compared, and numbers of each. To read the numbers of one takes some 10 µs, and on a device a wait.
_MOST, _NUMBERS = 500, 64
# Kinds of buffers in run.json: the largest of a model with many.
_MOST_KINDS = 20


class _Look(NamedTuple):
    """A buffer as it was: a reference to it, how often it had been written, where it lies, some of its numbers."""

    of: weakref.ref[torch.Tensor]
    version: int
    address: int
    numbers: str


class SentBuffers:
    """What the buffers of all wrapped models were as the window opened."""

    def __init__(self) -> None:
        self.looks: dict[int, _Look] = {}  # by id of the buffer

    def window_opens(self, objects: Iterable[Any]) -> None:
        """objects: what is alive."""
        self.looks = {}
        for model in wrappers(objects):
            for _, _, buffer in _sent(model):
                if len(self.looks) >= _MOST:
                    return
                self.looks[id(buffer)] = _look(buffer)

    def record(self, models: Iterable[Any], registered: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
        """Kinds of buffers, the largest first. registered: where the script registers the buffer of a name.

        name     class of the module and the buffer's name in it;  tensors: how many there are;  bytes: of all
        still    nothing wrote them while the window was open; None: not known
        file, line, function   where the script registers them, if one line does
        """
        kinds: dict[str, dict[str, Any]] = {}
        for model in models:
            for owner, name, buffer in _sent(model):
                key = f"{type(owner).__name__}.{name}"
                one = kinds.setdefault(key, {"name": key, "tensors": 0, "bytes": 0, "still": True, **registered(name)})
                one["tensors"] += 1
                one["bytes"] += buffer.numel() * buffer.element_size()
                one["still"] = _both(one["still"], self._still(buffer))
        return sorted(kinds.values(), key=lambda one: -int(one["bytes"]))[:_MOST_KINDS]

    def _still(self, buffer: torch.Tensor) -> bool | None:
        """Whether it is as it was; False too where another tensor took its place."""
        if not self.looks:
            return None
        before = self.looks.get(id(buffer))
        if before is None or before.of() is not buffer:
            return None if len(self.looks) >= _MOST else False
        return _look(buffer)[1:] == before[1:]


def wrappers(objects: Iterable[Any]) -> list[Any]:
    """The models among them that DistributedDataParallel wraps."""
    kind = torch.nn.parallel.DistributedDataParallel
    return [one for one in objects if kind in type(one).__mro__ and "module" in one.__dict__.get("_modules", {})]


def _sent(model: Any) -> Iterator[tuple[Any, str, torch.Tensor]]:
    """(module, name, buffer) of what a wrapped model copies: torch's `_assign_modules_buffers` chooses them so."""
    # Until torch 2.12 the argument `broadcast_buffers` is the attribute.
    if not getattr(model, "forward_sync_buffers", getattr(model, "broadcast_buffers", False)):
        return
    ignored = getattr(model, "parameters_to_ignore", ())
    for path, module in model.module.named_modules():
        for name, buffer in module._buffers.items():
            full = f"{path}.{name}" if path else name
            if type(buffer) is torch.Tensor and full not in ignored:
                yield module, name, buffer


def _look(buffer: torch.Tensor) -> _Look:
    with torch.no_grad():
        flat = buffer.detach().reshape(-1)
        numbers = str(flat[:: max(len(flat) // _NUMBERS, 1)][:_NUMBERS].tolist())
    return _Look(weakref.ref(buffer), buffer._version, buffer.data_ptr(), numbers)


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True
