"""Which ops of a step sum the squares of parameters, as a penalty in the loss does.

Pure, like `value_numbering`. A chain begins at the square of a whole parameter and goes on through ops that work
on each element, up to the op that sums it. The square of a norm is one, too: its gradient is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence, Set

from msgspec import Struct

from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values import unread_rows

_NORMS = frozenset({"aten::norm", "aten::linalg_vector_norm", "aten::linalg_norm", "aten::frobenius_norm"})
_SUMS = frozenset({"aten::sum", "aten::mean"})
_BY_ELEMENT = frozenset({"aten::mul", "aten::div"})


class Penalty(Struct, frozen=True):
    """op: the first of a chain, which reads the parameter; ops: all of the chain, the first included."""

    op: int
    ops: tuple[int, ...]


def find(
    ops: Sequence[Op], parameters: Set[tuple[int, int]], stored: unread_rows.Storages | None = None
) -> list[Penalty]:
    """The chains of one step, by places in it. parameters: (tensor, storage) of those that the script holds throughout.

    stored: `unread_rows.storages` of these ops, if known.
    """
    made, place = stored or unread_rows.storages(ops)
    results = {one.at: one for one in made}
    chains = (
        tuple(_chain(at, ops, results)) for at, op in enumerate(ops) if op.place == "loop" and _begins(op, parameters)
    )
    return [Penalty(place[chain[0]], tuple(place[at] for at in chain)) for chain in chains if chain]


def judge(steps: Sequence[Sequence[Penalty]], names: Sequence[Sequence[str]]) -> list[Penalty]:
    """Of the last of several steps the chains that begin in each of them. names: of the ops of each."""
    return [one for one, _ in in_each(steps, names)]


def _begins(op: Op, parameters: Set[tuple[int, int]]) -> bool:
    """Whether an op squares a parameter, or takes its norm."""
    refs = [ref for ref in op.refs if ref.sizes]
    if not refs or any((ref.tensor, ref.storage) not in parameters or ref != refs[0] for ref in refs):
        return False
    return _squares(op) or (op.name == "aten::mul" and len(refs) == 2) or op.name in _NORMS


def _chain(at: int, ops: Sequence[Op], results: dict[int, unread_rows.Made]) -> Iterator[int]:
    """The ops from the first on, where they end in a sum, or in the square of a norm; else none."""
    chain = [at]
    while (one := results.get(chain[-1])) and len(one.reads) == 1 and not one.views and not one.changed:
        op = ops[one.reads[0][0]]
        ends = _squares(op) if ops[at].name in _NORMS else op.name in _SUMS
        if not ends and (op.name not in _BY_ELEMENT or ops[at].name in _NORMS or _others(op, one.ref)):
            return
        chain.append(one.reads[0][0])
        if ends:
            yield from chain
            return


def _others(op: Op, mine: Ref) -> bool:
    """Whether an op reads another tensor of more than one number."""
    return any(ref.sizes and ref.storage != mine.storage for ref in op.refs)


def _squares(op: Op) -> bool:
    return op.name == "aten::square" or (op.name == "aten::pow" and json.loads(op.scalars)[:1] in ([2], [2.0]))
