"""Which ops of a step compute the same on each rank: products of what all ranks have gathered from each other.

Pure, like `value_numbering`. What an all-gather returns is the same on each rank, and so is what ops make of it
alone, of weights, and of tensors that they fill themselves. Gathered weights, as of FSDP, do not count: what is
gathered has to come from what this rank computed of its own batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Literal

from msgspec import Struct

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref

_PRODUCTS = frozenset(f"aten::{name}" for name in ("mm", "matmul", "bmm", "linear", "einsum", "cdist"))
# Of a tensor on this rank: gathered from all; computed from products of such; the same on each rank anyway; its own.
_Kind = Literal["gathered", "product", "equal", "own"]


class Same(Struct, frozen=True):
    """op: a product of two tensors that all ranks have gathered, or an op on what came of one alone."""

    op: int


def find(ops: Sequence[Op], parameters: Set[tuple[int, int]]) -> list[Same]:
    """Ops of one step, by their place in it. parameters: (tensor, storage) of those that the script holds."""
    kinds: dict[int, _Kind] = {}
    found = []
    place = 0
    for op in ops:
        mine = "own" if op.place != "loop" else _kind(op, kinds, parameters)
        if mine == "product" and not value_numbering.is_view(op):
            found.append(Same(place))
        # Threads of a collective write what it gathers, perhaps after its op has ended.
        written = [] if op.place == "elsewhere" else value_numbering.written(op)
        if _gathers(op):
            own = any(kinds.get(ref.storage) == "own" for argument in op.inputs[1:] for ref in argument)
            mine, written = ("gathered" if own else "equal"), list(op.inputs[0])
        given = {ref.storage for ref in op.refs if op.place == "elsewhere"}
        changed = (ref.storage for ref in (*op.outputs, *written))
        kinds |= dict.fromkeys((storage for storage in changed if storage not in given), mine)
        place += op.place != "elsewhere"
    return found


def judge(steps: Sequence[Sequence[Same]], names: Sequence[Sequence[str]]) -> list[int]:
    """Of the last of several steps those ops that each of them has. names: of the ops of each."""
    return [one.op for one, _ in in_each(steps, names)]


def _gathers(op: Op) -> bool:
    return "allgather" in op.name or "all_gather" in op.name


def _kind(op: Op, kinds: dict[int, _Kind], parameters: Set[tuple[int, int]]) -> _Kind:
    """What an op makes of what it reads."""
    if op.random or value_numbering.tells_nothing(op) or not op.name.startswith("aten::"):
        # Memory that nothing was written to yet is filled by what comes next.
        return "equal" if op.name.startswith(("aten::empty", "aten::new_empty")) else "own"
    read = [_of(ref, kinds, parameters) for ref in op.refs]
    if "own" in read:
        return "own"
    twice = op.name in _PRODUCTS and read.count("gathered") == 2
    return "product" if twice or "product" in read else _first(("gathered", "equal"), read)


def _first(order: Iterable[_Kind], read: Sequence[_Kind]) -> _Kind:
    return next((one for one in order if one in read), "equal")


def _of(ref: Ref, kinds: dict[int, _Kind], parameters: Set[tuple[int, int]]) -> _Kind:
    known = "equal" if ref.number or (ref.tensor, ref.storage) in parameters else "own"
    return kinds.get(ref.storage, known)  # type: ignore[arg-type]
