"""Which ops of a step compute many elements, of which later ops read a few: a selection that could come first.

Pure, like `value_numbering`. Ops are followed whose elements each depend on one element of what they read (products: on
one row and one column). A selection is an op that takes some elements, a look at a part, or a product with a tensor
that is mostly zeros: one that was made of zeros by writing at indices, as one-hot vectors are. The cosine of an arc
cosine is what that began with, but where something was added between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values import unread_rows

_TAKES = frozenset(
    f"aten::{name}" for name in ("gather", "index", "index_select", "masked_select", "take", "take_along_dim")
)
_BY_ELEMENT = frozenset(
    f"aten::{name}"
    for names in (
        ("add", "sub", "rsub", "mul", "div", "pow", "square", "sqrt", "rsqrt", "abs", "neg", "exp", "exp2", "expm1"),
        ("log", "log1p", "log2", "log10", "reciprocal", "sin", "cos", "tan", "acos", "asin", "atan", "atan2", "tanh"),
        ("sinh", "cosh", "erf", "erfc", "sigmoid", "log_sigmoid", "softplus", "relu", "gelu", "silu", "elu", "mish"),
        ("leaky_relu", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "where", "to", "_to_copy", "lerp"),
        ("contiguous", "clone", "lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_not"),
    )
    for name in names
)
_PRODUCTS = frozenset(f"aten::{name}" for name in ("mm", "matmul", "linear", "bmm", "addmm"))
# Where so many of an elementwise op's elements or more are read, the selection takes about as long as the rest of it.
_MOST_READ = 1 / 4
# A product for single pairs of a row and a column reads both once for each pair: forward, and twice in the backward
# pass, some 12 bytes for every 2 operations. At 50 GFLOPS and 10 GB/s of a core that takes 30 times as long.
_MOST_OF_PRODUCT = 1 / 64
_ZEROS = frozenset(f"aten::{name}" for name in ("zeros", "zeros_like", "new_zeros"))
_WRITES = frozenset(f"aten::{name}" for name in ("scatter_", "scatter", "index_put_", "scatter_add_", "scatter_add"))
# What is zero stays zero.
_KEEPS = frozenset(f"aten::{name}" for name in ("mul", "mul_", "div", "to", "_to_copy", "contiguous", "clone"))
_THROUGH = frozenset(f"aten::{name}" for name in ("clamp", "clamp_min", "clamp_max"))


class Picked(Struct, frozen=True):
    """op: one that computes `of` elements;  reader: an op that takes `read` of them, or of what came of them."""

    op: int
    reader: int
    read: int
    of: int


def find(ops: Sequence[Op], stored: unread_rows.Storages | None = None) -> list[Picked]:
    """Ops of one step, by their place in it. stored: `unread_rows.storages` of these ops, if known."""
    made, place = stored or unread_rows.storages(ops)
    results = unread_rows.of_each_op(made)
    sparse = _sparse(ops)
    found: dict[int, tuple[int, int]] = {}
    trips = dict(_round_trips(ops, results, sparse))
    for at in reversed(range(len(ops))):
        mine = results.get(at, [])
        if len(mine) == 1 and at not in trips and ops[at].place == "loop" and _followed(ops[at]):
            read = _read(mine[0], ops, found, sparse)
            if read is not None and read[1] <= _most(ops[at]) * mine[0].ref.elements:
                found[at] = read
    found |= trips  # what these begin with is read in full
    counts = {at: results[at][0].ref.elements for at in found}
    return [Picked(place[at], place[reader], read, counts[at]) for at, (reader, read) in sorted(found.items())]


def judge(steps: Sequence[Sequence[Picked]], names: Sequence[Sequence[str]]) -> list[Picked]:
    """Of the last of several steps those ops of which all steps read a few elements. names: of the ops of each."""
    return [
        Picked(one.op, one.reader, max([one.read, *(each.read for each in theirs)]), one.of)
        for one, theirs in in_each(steps, names)
    ]


def _followed(op: Op) -> bool:
    return len(op.outputs) == 1 and (op.name in _PRODUCTS or op.name in _BY_ELEMENT)


def _most(op: Op) -> float:
    return _MOST_OF_PRODUCT if op.name in _PRODUCTS else _MOST_READ


def _read(
    made: unread_rows.Made, ops: Sequence[Op], found: dict[int, tuple[int, int]], sparse: dict[int, dict[int, int]]
) -> tuple[int, int] | None:
    """(an op that selects, elements that are read); None where all may be."""
    if made.changed or made.views or not made.reads:
        return None
    reader, elements = -1, 0
    for at, ref in made.reads:
        if at in found and ref.elements == ops[at].outputs[0].elements and ops[at].name not in _PRODUCTS:
            reader, read = found[at]
        else:
            reader, read = at, _taken(ops[at], ref, made.ref, sparse.get(at, {}))
        if not read:
            return None
        elements += read
    return reader, elements


def _taken(op: Op, ref: Ref, made: Ref, sparse: dict[int, int]) -> int:
    """How many elements an op reads of a tensor; 0 where all, or it is not known."""
    first = bool(op.inputs and op.inputs[0] and op.inputs[0][0] is ref)
    if op.name in _TAKES and first and len(op.outputs) == 1:
        return op.outputs[0].elements
    if op.name == "aten::mul" or (op.name == "aten::where" and op.inputs[1:] and op.inputs[1] == (ref,)):
        others = op.inputs[:1] if op.name == "aten::where" else op.inputs
        known = [sparse[one.storage] for argument in others for one in argument if one.storage in sparse]
        if known and ref.elements == op.outputs[0].elements:
            return min(known)
    return ref.elements if ref.elements < made.elements else 0


def _sparse(ops: Sequence[Op]) -> dict[int, dict[int, int]]:
    """For each op that reads tensors of zeros but for a few elements: their storages -> how many these are at most."""
    now: dict[int, int] = {}
    found: dict[int, dict[int, int]] = {}
    for at, op in enumerate(ops):
        read = {ref.storage: now[ref.storage] for ref in op.refs if ref.storage in now}
        if any(read.values()):
            found[at] = {storage: count for storage, count in read.items() if count}
        left = _left(op, now)
        given = {ref.storage for ref in op.refs}
        written = value_numbering.written(op)
        for storage in {ref.storage for ref in op.outputs} - given | {ref.storage for ref in written}:
            now.pop(storage, None)
            if left is not None:
                now[storage] = left
    return found


def _left(op: Op, now: dict[int, int]) -> int | None:
    """How many elements of what an op makes are not zero at most; None where all may be."""
    if op.name in _ZEROS:
        return 0
    first = op.inputs[0][0] if op.inputs and op.inputs[0] else None
    if first is None:
        return None
    if op.name == "aten::one_hot":
        return first.elements
    if op.name in _WRITES and first.storage in now:
        indices = [ref for argument in op.inputs[1:3] for ref in argument]
        # Where some dimensions have no index, all along them is written.
        whole = "scatter" in op.name or len(op.inputs[1]) == len(first.sizes)
        return now[first.storage] + max(ref.elements for ref in indices) if indices and whole else None
    known = [now[ref.storage] for ref in op.refs if ref.storage in now]
    if op.name == "aten::div":
        return now.get(first.storage)
    return min(known) if op.name in _KEEPS and known else None


def _round_trips(
    ops: Sequence[Op], results: dict[int, list[unread_rows.Made]], sparse: dict[int, dict[int, int]]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Ops from an arc cosine to the cosine of it, with something added to a few elements between the two."""
    for at, op in enumerate(ops):
        if op.name != "aten::acos" or op.place != "loop":
            continue
        chain, added = [at], 0
        while (after := _only_reader(results.get(chain[-1], []))) is not None and ops[after].name != "aten::cos":
            few = sparse.get(after, {})
            if ops[after].name not in _THROUGH and not (ops[after].name in ("aten::add", "aten::sub") and few):
                break
            added += sum(few.values())
            chain.append(after)
        if after is not None and ops[after].name == "aten::cos" and added:
            yield from ((one, (after, added)) for one in (*chain, after))


def _only_reader(made: list[unread_rows.Made]) -> int | None:
    """The one op that reads what an op made, as a whole; None where there is another."""
    if len(made) != 1 or made[0].changed or made[0].views or len(made[0].reads) != 1:
        return None
    at, ref = made[0].reads[0]
    return at if ref.elements == made[0].ref.elements else None
