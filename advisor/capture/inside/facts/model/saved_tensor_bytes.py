"""Memory that kept graphs hold: the tensors that their nodes have saved for a backward pass and not given back.

A node's saved tensors are asked for as they lie there (`SavedTensor.data`), never unpacked: that would run what the
script gave to unpack them with, or compute a checkpointed layer once more.
"""

from __future__ import annotations

import contextlib
import statistics
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

# Steps whose graphs are looked at: two would tell what each holds for itself from what all share.
_STEPS = 3
# Nodes of one step that are looked at; one takes some 20 microseconds.
_MOST_NODES = 2000
_SAVED = "_raw_saved_"


def tells() -> bool:
    """Whether this torch gives a saved tensor as it lies there."""
    return hasattr(getattr(torch._C._autograd, "SavedTensor", None), "data")


def held_bytes(roots: Mapping[int, Sequence[Any]], marks: Sequence[int]) -> float | None:
    """Bytes that the graphs of one step hold, the median of a few; None in a torch that does not tell.

    roots: the step by its place among the marks -> nodes whose graphs are kept. marks: autograd's next node at the end
    of each step. Of tensors that the graphs of several steps hold (weights, constants) none is counted.
    """
    if not tells():
        return None
    # What came before the first mark may be of many steps.
    chosen = [step for step in sorted(roots) if step] or sorted(roots)
    found = [_storages(roots[step], step, marks) for step in chosen[:_STEPS]]
    seen = [key for one in found for key in one]
    return statistics.median(sum(size for key, size in one.items() if seen.count(key) == 1) for one in found)


def _storages(roots: Sequence[Any], step: int, marks: Sequence[int]) -> dict[int, int]:
    """Address -> bytes of what nodes of this step have saved."""
    todo, seen = list(roots), set(roots)
    found: dict[int, int] = {}
    while todo and len(seen) < _MOST_NODES:
        node = todo.pop()
        for tensor in _saved(node):
            with contextlib.suppress(Exception):  # without storage: sparse, or of another system
                storage = tensor.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
        new = {one for one, _ in node.next_functions if one is not None} - seen
        # Nodes that store gradients have the largest number there is.
        new = {one for one in new if bisect_right(marks, one._sequence_nr()) == step}
        seen |= new
        todo += new
    return found


def _saved(node: Any) -> Iterator[Any]:
    """The plain tensors that a node has saved, weights left out."""
    kind = type(node)
    values: list[Any] = []
    if torch._C._FunctionBase in kind.__mro__:
        with contextlib.suppress(RuntimeError):  # given back
            values = [torch._C._FunctionBase._raw_saved_tensors.__get__(node)]
    else:
        values = [getattr(node, name) for name in dir(kind) if name.startswith(_SAVED)]
    for value in values:
        for one in value if type(value) in (tuple, list) else (value,):
            tensor: Any = one.data if type(one) is torch._C._autograd.SavedTensor else None
            if type(tensor) is torch.Tensor and not (tensor.is_leaf and tensor.requires_grad):
                yield tensor
