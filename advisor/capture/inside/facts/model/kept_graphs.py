"""Losses that are kept with their graphs: what a loop holds on to of earlier steps, and in which variable.

Looked at before the window opens and when it has closed. A step leaves a few numbers with a graph behind (its loss and
the parts of it), which the next step replaces; a list that grows holds some for each step, a sum a chain of as many
additions, and a meter that is read once an epoch either of them since the epoch began.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import torch

from .saved_tensor_bytes import held_bytes
from .variable_holders import holder

# Marks kept: of more steps than pass before anybody looks, but where the script's end is the first chance.
MOST_MARKS = 4096
# Steps: smoothed curves of the last few losses stay below; a loop that keeps them is past it when looked at.
_LEAST_KEPT = 10
# Additions followed at most: a long run has made more, and a few thousand tell as much.
_MOST_NODES = 4096
_SUMS = ("AddBackward0", "SubBackward0")
_ARITHMETIC = (*_SUMS, "MulBackward0", "DivBackward0", "LerpBackward0")


def number() -> int | None:
    """Of the node that autograd makes next on this thread; None in a torch that does not tell."""
    read = getattr(torch._C._autograd, "_get_sequence_nr", None)
    return int(read()) if read is not None else None


def kept(alive: Sequence[Any], marks: Sequence[int | None], steps: int) -> dict[str, Any] | None:
    """Facts of losses kept with their graphs, or None; called on the loop's thread. steps: iterations so far.

    alive: tensors of one number that have a graph. marks: autograd's next node at each boundary, the oldest first. What
    is younger than the last but one is of the last step: a reinforcement learner makes as many numbers with a graph in
    one step as another script in a hundred.
    """
    known = [mark for mark in marks if mark is not None]
    if len(known) < 2 or len(known) < len(marks):
        return None
    before = known[:-1]
    chains = {id(one): _chain(one.grad_fn, before) for one in alive}
    longest = max(map(len, chains.values()), default=0)
    listed: dict[int, list[Any]] = {}
    for one in alive:
        if (made := one.grad_fn._sequence_nr()) < before[-1]:
            listed.setdefault(bisect_right(before, made), []).append(one.grad_fn)
    if max(len(listed), longest) < _LEAST_KEPT:
        return None
    summed = longest >= _LEAST_KEPT
    if summed:
        # A meter keeps its mean beside its sum, and one of them names it; lists of terms are named together.
        wanted = {key for key, chain in chains.items() if len(chain) == longest}
        least = (len(wanted) + 1) // 2
        roots = next(
            {step: [node] for step, node in chain.items()} for chain in chains.values() if len(chain) == longest
        )
    else:
        wanted = {id(one) for one in alive if one.grad_fn._sequence_nr() < before[-1]}
        least = len(wanted) // 2 + 1
        roots = listed
    return {
        "losses": len(roots) if summed else len(wanted),
        "steps": len(roots),
        "of_steps": steps,
        "summed": summed,
        "held_bytes": held_bytes(roots, before),
        **holder(sys._getframe(), wanted, least),
    }


def _chain(node: Any, before: Sequence[int]) -> dict[int, Any]:
    """Additions that follow each other in a graph, through products with plain numbers: one of each earlier step."""
    found: dict[int, Any] = {}
    for _ in range(_MOST_NODES):
        if node is None or (name := node.name()) not in _ARITHMETIC:
            break
        if name in _SUMS and (made := node._sequence_nr()) < before[-1]:
            found[bisect_right(before, made)] = node
        behind = [one for one, _ in node.next_functions if one is not None and one.name() in _ARITHMETIC]
        behind.sort(key=lambda one: one.name() not in _SUMS)
        node = behind[0] if behind else None
    return found
