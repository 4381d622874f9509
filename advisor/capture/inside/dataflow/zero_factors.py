"""Terms of a loss that are multiplied by zero, as the graph of a backward pass that begins has them.

torch's observer writes down which tensors a product reads, and of a number of Python only that there was one. Autograd
keeps that number for the gradient of the other factor. Read is what lies on the CPU already, and as it lies there: to
unpack it would run what the script gave to unpack it with, or compute a checkpointed layer once more.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from ..facts.model import kept_graphs

# Nodes of one backward pass that are looked at, those nearest to the loss first; one takes some 10 microseconds.
_MOST_NODES = 4000
# Where torch calls its engine, and the local variable that holds what the pass begins with.
_CALLS, _OUTPUTS = "_engine_run_backward", "t_outputs"


class ZeroFactors:
    """What is known of the observed steps' backward passes, as numbers that autograd gave to the nodes of ops.

    zeros: products with zero, and sums that add zero times a tensor
    roots: (what a pass began with, the next number at that time if autograd.grad was asked, else -1)
    """

    def __init__(self) -> None:
        self.zeros: list[int] = []
        self.roots: list[tuple[int, int]] = []

    def passed(self) -> None:
        """A backward pass begins on this thread."""
        outputs, asked = _outputs()
        roots = [node for one in outputs if (node := getattr(one, "grad_fn", None)) is not None]
        begun = (kept_graphs.number() or -1) if asked else -1
        self.roots += [(one._sequence_nr(), begun) for one in roots]
        self.zeros += [one._sequence_nr() for one in _nodes(roots) if _by_zero(one)]


def _outputs() -> tuple[tuple[Any, ...], bool]:
    """The tensors that the pass which is about to begin was asked for, and whether it returns its gradients."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _CALLS:
            caller = frame.f_back
            asked = caller is not None and caller.f_code.co_name == "grad"
            return tuple(frame.f_locals.get(_OUTPUTS, ())), asked
        frame = frame.f_back
    return (), False


def _nodes(roots: list[Any]) -> Iterator[Any]:
    """The nodes of a graph, those nearest to its roots first."""
    seen = set(roots)
    level = roots
    while level and len(seen) < _MOST_NODES:
        yield from level
        level = list(dict.fromkeys(one for node in level for one, _ in node.next_functions if one is not None))
        level = [one for one in level if one not in seen]
        seen.update(level)


def _by_zero(node: Any) -> bool:
    """Whether nothing of a factor that wants a gradient comes through.

    A factor that is zero and wants a gradient itself, as a gate that training opens, is none.
    """
    kind = type(node).__name__
    if kind in ("AddBackward0", "SubBackward0"):
        return bool(node._saved_alpha == 0)
    return kind == "MulBackward0" and any(
        wants is None and _is_zero(node, name)
        for name, (wants, _) in zip(("_raw_saved_self", "_raw_saved_other"), node.next_functions, strict=False)
    )


def _is_zero(node: Any, name: str) -> bool:
    """Whether a factor is one number on the CPU, and zero."""
    with contextlib.suppress(Exception):  # not kept, given back by an earlier pass, or packed by the script
        kept = getattr(node, name).data
        if type(kept) is torch.Tensor and kept.device.type == "cpu" and not kept.dim():
            # Asked for its number by an op, the observer would write down that op as the script's.
            return not any((ctypes.c_ubyte * kept.element_size()).from_address(kept.data_ptr()))
    return False
