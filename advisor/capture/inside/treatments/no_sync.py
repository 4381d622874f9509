"""Gradient accumulation under DistributedDataParallel: gradients are joined in the last backward pass only."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .door import Door

_ONCE = (
    "DistributedDataParallel: each backward pass is followed by an optimizer step, so no synchronization can be skipped"
)


def apply(_arguments: dict[str, Any], door: Door) -> None:
    """Learns from the first optimizer step how many passes are accumulated; from then on all but the last are local."""
    cycle = _Cycle(door)
    kind: Any = DistributedDataParallel
    forward = kind.forward

    def changed(model: Any, *args: Any, **kwargs: Any) -> Any:
        cycle.forward(model)
        return forward(model, *args, **kwargs)

    kind.forward = changed
    door.on_backward(cycle.backward)
    register_optimizer_step_pre_hook(lambda *_: cycle.step())


class _Cycle:
    """Passes between two optimizer steps."""

    def __init__(self, door: Door) -> None:
        self.notes = door.notes
        self.on = True
        # Weak: the treatment lives as long as the process, and a model that the script lets go of must not.
        self.known: weakref.ref[Any] | None = None
        self.length = 0
        self.forwards = 0
        self.backwards = 0

    def forward(self, model: Any) -> None:
        """A forward of the model begins."""
        if not self.on or not torch.is_grad_enabled():
            return
        if self.known is not None and self.known() is not model:
            self._stop(
                "several DistributedDataParallel models: it is not known which of them each optimizer step updates"
            )
            return
        self.known = weakref.ref(model)
        if not self.length and not model.require_backward_grad_sync:
            self._stop("DistributedDataParallel, which already runs under no_sync()")
            return
        self.forwards += 1
        if self.length:
            model.require_backward_grad_sync = self.forwards >= self.length

    def backward(self) -> None:
        """A backward pass begins."""
        self.backwards += 1

    def step(self) -> None:
        """An optimizer is about to step."""
        if not self.on or not self.forwards:
            return
        if not self.length:
            if self.backwards != self.forwards or self.forwards == 1:
                self._stop(_ONCE)
                return
            self.length = self.forwards
            self.notes.reach(
                f"DistributedDataParallel: {self.length - 1} of {self.length} backward passes without sync"
            )
        elif self.forwards < self.length and (model := self._model()) is not None:
            _join(model)  # the epoch ended in the middle
        self.forwards = self.backwards = 0

    def _model(self) -> Any:
        return self.known() if self.known is not None else None

    def _stop(self, why: str) -> None:
        self.on = False
        if self.length and (model := self._model()) is not None:
            model.require_backward_grad_sync = True
        self.notes.miss(why)


def _join(model: Any) -> None:
    """What the passes without sync left to do."""
    ranks = torch.distributed.get_world_size(model.process_group)
    for parameter in model.parameters():
        if parameter.grad is not None:
            torch.distributed.all_reduce(parameter.grad, group=model.process_group)
            parameter.grad /= ranks
