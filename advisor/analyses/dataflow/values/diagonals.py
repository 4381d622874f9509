"""Which ops of a step compute something of all pairs, of which only that of each with itself is read.

Pure, like `value_numbering`. The pairs are the first two dimensions of a result, which are equally long; ops work on
each pair by itself. What Python reads without an op is seen as a view that no op reads, and counts as read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values import unread_rows

_TAKES = ("aten::diag", "aten::diagonal_copy", "aten::trace")
BY_PAIR = frozenset(
    f"aten::{name}"
    for names in (
        (
            "add",
            "sub",
            "rsub",
            "mul",
            "div",
            "pow",
            "square",
            "sqrt",
            "rsqrt",
            "abs",
            "neg",
            "exp",
            "log",
            "reciprocal",
        ),
        ("maximum", "minimum", "max", "min", "clamp", "clamp_min", "clamp_max", "relu", "sigmoid", "tanh", "where"),
        ("lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "to", "_to_copy", "contiguous", "clone"),
        ("atan", "atan2", "sin", "cos", "cosine_similarity", "sum", "mean", "prod", "norm", "linalg_vector_norm"),
    )
    for name in names
)
PRODUCTS = ("aten::mm", "aten::matmul", "aten::cdist")


class Diagonal(Struct, frozen=True):
    """op: one that works on pairs; reader: the op that takes the diagonal of what came of it; of: pairs of each."""

    op: int
    reader: int
    of: int


def find(ops: Sequence[Op], stored: unread_rows.Storages | None = None) -> list[Diagonal]:
    """Ops of one step, by their place in it. stored: `unread_rows.storages` of these ops, if known."""
    made, place = stored or unread_rows.storages(ops)
    results = unread_rows.of_each_op(made)
    found: dict[int, tuple[int, int]] = {}
    for at in reversed(range(len(ops))):
        mine = results.get(at, [])
        if len(mine) == 1 and ops[at].place == "loop" and (of := _pairs(ops[at])):
            reader = _reader(mine[0], ops, found, of)
            if reader is not None:
                found[at] = reader, of
    found |= dict(_looks(ops, made, found))
    return [Diagonal(place[at], place[reader], of) for at, (reader, of) in sorted(found.items())]


def _looks(
    ops: Sequence[Op], made: Sequence[unread_rows.Made], found: dict[int, tuple[int, int]]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Ops that only look at a part of each pair: they take no time, but the backward pass of each fills all pairs."""
    by_op = {one.at: one for one in made}
    holders: dict[int, int] = {}
    for at, op in enumerate(ops):
        maker = holders.get(op.inputs[0][0].storage, -1) if op.inputs and op.inputs[0] else -1
        if maker in found and op.place == "loop" and at not in by_op:
            yield at, found[maker]
        holders.update({ref.storage: at for ref in op.outputs if at in by_op})


def judge(steps: Sequence[Sequence[Diagonal]], names: Sequence[Sequence[str]]) -> list[Diagonal]:
    """Of the last of several steps those ops of whose pairs all steps read the diagonal. names: of the ops of each."""
    return [Diagonal(one.op, one.reader, one.of) for one, _ in in_each(steps, names)]


def _pairs(op: Op) -> int:
    """How many pairs an op makes something of for each; 0 where it makes something else."""
    sizes = op.outputs[0].sizes
    if len(sizes) < 2 or sizes[0] != sizes[1] or sizes[0] < 2:
        return 0
    if op.name in PRODUCTS:
        return sizes[0] if len(sizes) == 2 else 0
    return sizes[0] if op.name in BY_PAIR and _keeps_pairs(op, sizes) else 0


def _keeps_pairs(op: Op, sizes: list[int]) -> bool:
    """Whether each argument has the same pairs, with more of each where an op sums that up, or is broadcast to them."""
    for given in (ref.sizes for ref in op.refs):
        if len(given) > len(sizes) and (given[:2] != sizes[:2] or sizes[0] in given[2:]):
            return False
    return True


def _reader(made: unread_rows.Made, ops: Sequence[Op], found: dict[int, tuple[int, int]], of: int) -> int | None:
    """The op that takes the diagonal of what was made, or of what came of it; None where more may be read."""
    if made.changed or made.views or not made.reads:
        return None
    readers = set()
    for at, ref in made.reads:
        if at in found and found[at][1] == of and ref.sizes[:2] == [of, of]:
            readers.add(found[at][0])
        elif (ops[at].name in _TAKES and ref.sizes == [of, of]) or _is_diagonal(ref, made.ref, of):
            readers.add(at)
        else:
            return None
    return max(readers)


def _is_diagonal(ref: Ref, made: Ref, of: int) -> bool:
    """Whether a tensor looks at the pairs of each with itself alone."""
    offset, sizes, strides = ref.layout
    start, _, steps = made.layout
    return offset == start and sizes == [of] and strides == [steps[0] + steps[1]]
