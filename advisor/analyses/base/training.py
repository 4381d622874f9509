"""Whether a trace shows training, or forward passes alone."""

from __future__ import annotations

from msgspec import Struct

from advisor.trace.events import Category, Trace


class Training(Struct, frozen=True):
    """What a trace shows of training, anywhere in it.

    backward   the trace has an event of a backward pass
    optimizer  the trace has an event of an optimizer step

    Without both it is inference, or a part of a training step whose other parts were not recorded: it is not known
    whether a backward pass follows.
    """

    backward: bool
    optimizer: bool

    @property
    def seen(self) -> bool:
        """Whether the trace has either of them."""
        return self.backward or self.optimizer

    @classmethod
    def compute(cls, trace: Trace) -> Training:
        """What this trace shows."""
        events = trace.events
        host = events.of(Category.CPU_OP, Category.ANNOTATION)
        return cls(
            backward=bool((host & events.named("autograd::engine", "backward")).any()),
            optimizer=bool((host & events.named("Optimizer.step#")).any()),
        )
