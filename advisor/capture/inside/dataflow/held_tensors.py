"""Tensors that the script holds through the observed steps, and whether they rest until it ends.

The observer tells a tensor by its address, which the next tensor may have. So those that are alive some steps before
are marked for it, and looked at when the steps are over. Weights that rest in two steps may be trained in the third, or
be thawed in a later epoch: whenever an iterator of a loader begins, those that rested are looked at again, and without
loaders at twice as many steps as the time before.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

# Marking one that is alive takes some 10 µs.
_MOST_TENSORS = 20_000
# A look at one takes a µs; of the CPU time of the process all looks together take at most this share.
_LOOKS_SHARE = 0.01
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
# Bits of what is known of one, as `record.Dataflow.held` has them.
ALIVE, SAME, ASKS, WRITTEN = 1, 2, 4, 8

# A weak reference to a tensor, how often it had been written, where it lies.
Held = tuple[Any, int, int]


def _has_no_strides(tensor: torch.Tensor) -> bool:
    """Whether it is stored in compressed sparse form, or is nested: torch's observer asks every tensor for strides."""
    return tensor.layout in _COMPRESSED or (tensor.is_nested and tensor.layout is torch.strided)


class HeldTensors:
    """states: for each tensor that was marked, in order, the sum of its bits; looks: how often it was looked at since.

    A tensor that is no longer watched keeps its state.  without_strides: one of those alive has none.
    """

    def __init__(self) -> None:
        self.found: list[Held] = []
        self.marked: list[Held] = []
        self.states: list[int] = []
        self.resting: dict[int, Held] = {}  # by place among those that were marked
        self.looks = 0
        self.looked_s = 0.0
        self.without_strides = False

    def find(self, alive: Iterable[Any]) -> None:
        """Takes note of the tensors among these, some steps before those that are observed; weights come first."""
        self.found = []
        plain, weights = [], []
        for one in alive:
            # No subclass: to ask one for its layout runs code of the script's.
            if type(one) is torch.nn.Parameter:
                weights.append(one)
            elif type(one) is torch.Tensor:
                plain.append(one)
        self.without_strides = any(map(_has_no_strides, weights + plain))
        for one in (weights + plain)[:_MOST_TENSORS]:
            with contextlib.suppress(Exception):  # one without storage: sparse, or not filled yet
                self.found.append((weakref.ref(one), one._version, one.data_ptr()))

    def mark(self) -> None:
        """Runs an op on each that is still there: the observer writes them down in this order."""
        self.marked, self.states, self.resting, self.looks = [], [], {}, 0
        with torch.no_grad():
            for held in self.found:
                one = held[0]()
                if one is not None and one.data_ptr() == held[2]:
                    self.marked.append(held)
                    one.detach()
                del one
        self.found = []

    def settle(self) -> None:
        """The observed steps are over: what became of each."""
        self.states = [_state(held) for held in self.marked]
        self.resting = {at: held for at, held in enumerate(self.marked) if self.states[at] & SAME}
        self.marked = []

    def at_rest(self) -> Iterator[tuple[int, Any]]:
        """Place and tensor of those that nothing has written so far."""
        for at, (reference, *_) in self.resting.items():
            one = reference()
            if one is not None:
                yield at, one

    def look(self, optimizers: Iterable[Any]) -> None:
        """Later on, as an epoch or a validation begins: what was written since is no longer at rest.

        optimizers: those that have stepped; fused ones do not tell tensors that they write to them.
        """
        began_s = time.process_time()
        if not self.resting or self.looked_s > _LOOKS_SHARE * began_s:
            return
        trained = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
        for at, held in list(self.resting.items()):
            now = _state(held)
            self.states[at] |= now & ASKS
            if not now & SAME or (now & ASKS and id(held[0]()) in trained):
                self.states[at] |= WRITTEN
                del self.resting[at]
        self.looks += 1
        self.looked_s += time.process_time() - began_s

    def record(self) -> str:
        """A hexadecimal digit for each."""
        return "".join(f"{state:x}" for state in self.states)


def _state(held: Held) -> int:
    reference, version, address = held
    one = reference()
    if one is None:
        return 0
    same = bool(one._version == version and one.data_ptr() == address)
    return ALIVE + SAME * same + ASKS * bool(one.requires_grad)
