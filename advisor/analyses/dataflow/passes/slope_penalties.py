"""Which ops of a step make one number out of gradients alone, as a gradient penalty does.

Pure, like `value_numbering`. A chain begins at the op of the loop that reads what a backward pass made, and goes on
through ops that read nothing else but numbers and tensors of ones or zeros, up to the op that makes one number of it.
Where a gradient is also read together with anything else (a target that it is compared with, the weights that it
updates, a layer that it goes through), it is a result in itself, and none of its chains counts. Whether the number is
differentiated, the trace tells: the norm of all gradients for clipping is such a chain, too.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec import Struct, field

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref

# Filled with one number, whatever they are given: a penalty compares norms with ones.
_BLANK = frozenset(
    f"aten::{name}" for name in ("ones", "zeros", "full", "ones_like", "zeros_like", "full_like", "new_ones")
)
# Whose ops compute with weights: what goes through them is more than a number about the gradient.
_LAYERS = ("linear", "conv", "_conv", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "embedding", "lstm", "gru")
_DIFFERENCES = frozenset(f"aten::{name}" for name in ("sub", "sub_", "rsub", "mse_loss", "l1_loss", "smooth_l1_loss"))
_NONE: frozenset[int] = frozenset()


class SlopePenalty(Struct, frozen=True):
    """op: the first op of a chain, which reads the gradient; ops: all of the chain, in order.

    centred: it compares the gradient, or its norm, with a number of the script (`norm - 1`).
    """

    op: int
    ops: tuple[int, ...]
    centred: bool


class _Slope(Struct, frozen=True):
    """What a storage holds: the ops that made the gradients in it, and those of the loop that worked on them since."""

    made: frozenset[int]
    ops: frozenset[int] = _NONE
    centred: bool = False


class _Walk(Struct):
    """What is known of storages after the ops so far."""

    slopes: dict[int, _Slope] = field(default_factory=dict)
    blank: set[int] = field(default_factory=set)
    mixed: set[int] = field(default_factory=set)  # ops whose gradients are read together with something else
    ended: list[_Slope] = field(default_factory=list)

    def take(self, at: int, op: Op) -> None:
        """Goes on by one op."""
        touched = {ref.storage for ref in op.refs}
        made = [ref for ref in op.outputs if ref.storage not in touched]
        if op.place in ("backward", "elsewhere"):  # beside a device backward passes have threads of their own
            self._forget(made)
            self.slopes |= {ref.storage: _Slope(frozenset((at,))) for ref in made}
            return
        if op.place != "loop" or value_numbering.reads_form(op) or op.name in _BLANK:
            self._forget(made)
            self.blank |= {ref.storage for ref in made if op.name in _BLANK}
            return
        read = [ref for ref in op.refs if ref.elements > 1]
        own = [self.slopes[ref.storage] for ref in read if ref.storage in self.slopes]
        if not own:
            self._forget(made)
            return
        known = _Slope(
            frozenset().union(*(one.made for one in own)),
            frozenset((at,)).union(*(one.ops for one in own)),
            _compares(op, self.blank) or any(one.centred for one in own),
        )
        others = any(ref.storage not in self.slopes and ref.storage not in self.blank for ref in read)
        if others or not op.name.startswith("aten::") or op.name.removeprefix("aten::").startswith(_LAYERS):
            self.mixed |= known.made
            self._forget(op.outputs)
            return
        self._forget(made)
        self.slopes |= {ref.storage: known for ref in op.outputs if ref.elements > 1}
        if any(ref.elements == 1 for ref in made):
            self.ended.append(known)

    def _forget(self, refs: Sequence[Ref]) -> None:
        """Another tensor may have had this address."""
        for ref in refs:
            self.slopes.pop(ref.storage, None)
            self.blank.discard(ref.storage)


def find(ops: Sequence[Op]) -> list[SlopePenalty]:
    """The chains of one step, by places in it, ops of other threads left out."""
    walk, place, count = _Walk(), [], 0
    for at, op in enumerate(ops):
        place.append(count)
        count += op.place != "elsewhere"
        walk.take(at, op)
    chains = (one for one in walk.ended if not one.made & walk.mixed)
    return [
        SlopePenalty(place[min(one.ops)], tuple(place[at] for at in sorted(one.ops)), one.centred) for one in chains
    ]


def judge(steps: Sequence[Sequence[SlopePenalty]], names: Sequence[Sequence[str]]) -> list[SlopePenalty]:
    """Of the last of several steps the chains that begin in each of them. names: of the ops of each."""
    return [one for one, _ in in_each(steps, names)]


def _compares(op: Op, blank: Set[int]) -> bool:
    """Whether an op takes a number of the script, or a tensor filled with one, from what it is given."""
    others = [ref for argument in op.inputs[1:] for ref in argument]
    return op.name in _DIFFERENCES and (not others or any(ref.number or ref.storage in blank for ref in others))
