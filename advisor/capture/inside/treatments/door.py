"""What a treatment may use in the script's process: its models, its backward passes, and a place to say what it did."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ..guards.user_code import file_of, foreign_folders

# More lines than this say nothing new: a script may make a loader in each epoch.
_MOST_NOTES = 8
# Backward passes until models are looked for: those of the warm-up. A GAN's generator may come after its critic's.
_SEARCHED = 10
Listener = Callable[[Any], None]


class Notes:
    """What treatments reached, and what they could not reach and why; each sentence once."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.missed: list[str] = []

    def reach(self, text: str) -> None:
        """A place that is changed now."""
        _add(self.reached, text)

    def miss(self, text: str) -> None:
        """A place that stayed as it was, and why."""
        _add(self.missed, text)


def _add(texts: list[str], text: str) -> None:
    if text not in texts and len(texts) < _MOST_NOTES:
        texts.append(text)


class Door:
    """Opened once in a process, before the script's first line after `import torch`."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.foreign = foreign_folders()
        self._models: list[Listener] = []
        self._backwards: list[Callable[[], None]] = []
        self._known: set[int] = set()
        self._searching = False

    def on_model(self, listener: Listener) -> None:
        """listener(model): a model that is trained is about to run its first forward; models inside it do not count.

        Models are looked for during the warm-up only: a wrapper around every call of a module would cost time.
        """
        self._models.append(listener)
        if not self._searching:
            self._searching = True
            self._search()

    def on_backward(self, listener: Callable[[], None]) -> None:
        """listener(): a backward pass begins."""
        if not self._backwards:
            self._watch_backward()
        self._backwards.append(listener)

    def from_user(self, frame: Any) -> bool:
        """Whether this frame runs the user's code, not that of torch or of another package."""
        return frame is not None and bool(file_of(frame.f_code, self.foreign))

    def _search(self) -> None:
        kind: Any = torch.nn.Module
        original = kind.__call__
        found, passes = self._found, 0

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            found(module)
            # What runs inside the call, torch.compile's tracing included, meets torch as it was.
            kind.__call__ = original
            try:
                return original(module, *args, **kwargs)
            finally:
                if self._searching:
                    kind.__call__ = call

        def end() -> None:
            self._searching = False
            kind.__call__ = original

        def backward() -> None:
            nonlocal passes
            passes += 1
            if self._searching and self._known and passes >= _SEARCHED:
                end()

        kind.__call__ = call
        self.on_backward(backward)
        os.register_at_fork(after_in_child=end)  # loader workers train nothing

    def _found(self, module: Any) -> None:
        if not torch.is_grad_enabled() or id(module) in self._known:
            return
        if any(parameter.requires_grad for parameter in module.parameters()):
            self._known.add(id(module))
            for listener in self._models:
                try:
                    listener(module)
                except Exception as failure:  # a torch that does not have it
                    self.notes.miss(f"{type(module).__name__}: {type(failure).__name__}: {failure}")

    def _watch_backward(self) -> None:
        # Tensor.backward() looks `backward` up here as well.
        module: Any = torch.autograd
        for name in ("backward", "grad"):
            setattr(module, name, _before(getattr(module, name), self._backwards))


def _before(call: Callable[..., Any], listeners: list[Callable[[], None]]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for listener in listeners:
            listener()
        return call(*args, **kwargs)

    return wrapped


def wrap_call(model: Any, before: Callable[..., Any]) -> None:
    """before(call, args, kwargs) runs in place of each call of this model, and calls it."""
    # torch keeps a compiled version of a module's call here, reads it first, and leaves it out of pickles and copies.
    inner = model._compiled_call_impl or model._call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        return before(inner, args, kwargs)

    model._compiled_call_impl = call
