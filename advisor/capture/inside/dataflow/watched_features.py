"""Features that a step computes of each sample with weights that stay (`by_sample`), watched until the script ends.

Weights that rest in two steps may be trained in the third, or be thawed in a later epoch: whenever an iterator of a
loader begins, they are looked at again. Numbers that Python draws decide what runs without a trace of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..facts.randomness import Generators
from .frozen_features import FrozenFeatures

# A weight: a weak reference to it, how often it had been written, where it lies.
Held = tuple[Any, int, int]


class Features:
    """What is known of a step's features, and whether it still holds."""

    def __init__(self) -> None:
        self.generators = Generators()
        self.states: object = None
        self.calm = False  # no numbers were drawn in the observed steps but by ops of torch's, which are seen
        self.found: FrozenFeatures | None = None
        self.weights: list[Held] = []
        self.frozen = False
        self.begun = 0  # iterators of loaders that began since then, while all weights were as before

    def look(self) -> None:
        """Looks for the script's own generators of random numbers, some steps before those that are observed."""
        self.generators.find()

    def begin(self) -> None:
        """The observed steps begin."""
        self.states = self.generators.beside_torch()

    def end(self) -> None:
        """The observed steps end."""
        before, self.states = self.states, None
        self.calm = before is not None and before == self.generators.beside_torch()
        self.generators.forget()

    def keep(self, found: FrozenFeatures | None, held: Iterable[tuple[int, Held]]) -> None:
        """Keeps what was found. held: the tensors that the script holds, by their storage."""
        self.found = found
        wanted = frozenset(found.weights) if found is not None else frozenset()
        self.weights = [one for storage, one in held if storage in wanted]
        alive = [reference() for reference, _, _ in self.weights]
        self.frozen = not any(one is not None and one.requires_grad for one in alive)

    def iterator_begins(self, optimizers: Iterable[Any]) -> None:
        """A loader is asked for batches anew: an epoch, a validation. What was written since is no longer frozen.

        optimizers: those that have stepped; fused ones do not tell tensors that they write to them.
        """
        if self.found is None:
            return
        trained = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
        now = [(ref(), version, address) for ref, version, address in self.weights]
        moved = any(
            one is None or one._version != version or one.data_ptr() != address for one, version, address in now
        )
        asking = [one for one, _, _ in now if one is not None and one.requires_grad]
        if moved or any(id(one) in trained for one in asking):
            self.found = None
        self.frozen = self.frozen and not asking
        self.begun += 1

    def record(self) -> dict[str, Any] | None:
        """What run.json holds of it."""
        if self.found is None:
            return None
        return {
            "ops": self.found.ops,
            "samples": self.found.samples,
            "kept_bytes": self.found.kept_bytes,
            "read_bytes": self.found.read_bytes,
            "layers": self.found.layers,
            "frozen": self.frozen,
            "begun": self.begun,
        }
