"""Which ops of a step compute rows that nothing reads: results of which later ops take a few rows.

Pure, like `value_numbering`. A row is all that lies along a tensor's last dimension. Rows that are multiplied by a mask
of `chosen == i` count as taken by one of as many such products as there are: no row is in two of these masks. Only ops
that work on each row by itself are judged: what a recurrent layer, an attention or a convolution computes for one row
it may need for another. What Python reads without an op is seen as a view that no op reads, and counts as read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref

# A mask, and what makes numbers of it.
_EQUAL, _CASTS = "aten::eq", ("aten::to", "aten::_to_copy", "aten::type_as")
# What was compared for a mask, and the number that it was compared with.
_Mask = tuple[tuple[int, int, int], str]
# What Python calls to write a part of a tensor.
_PICKS = ("aten::select", "aten::slice")
# Ops that take some rows of their first argument, where what they make has rows of the same length.
_TAKE = frozenset(f"aten::{name}" for name in ("index", "index_select", "gather", "take_along_dim"))
# Ops that make each row of their result from one row of their first argument and from weights.
_BY_ROW = frozenset(
    f"aten::{name}"
    for names in (
        ("linear", "to", "_to_copy", "relu", "gelu", "silu", "elu", "leaky_relu", "hardswish", "hardtanh", "mish"),
        ("tanh", "sigmoid", "softplus", "exp", "log", "dropout", "layer_norm", "rms_norm"),
    )
    for name in names
)
# Ops that make another shape of the same rows.
_RESHAPE = frozenset(f"aten::{name}" for name in ("reshape", "flatten", "contiguous", "clone", "view", "_unsafe_view"))
_SOFTMAX = re.compile(r"^aten::_?(log_)?softmax$")
# Ops of two arguments that are by row where the second is a number.
_WITH_NUMBER = frozenset(f"aten::{name}" for name in ("mul", "div", "add", "sub", "clamp", "pow"))
# Products: by row where what they multiply with is one matrix for all rows.
_PRODUCTS = ("aten::matmul", "aten::mm")
# What reads rows, and leaves out those whose label it is told to ignore: how many, only the labels tell.
_LOSS = "aten::cross_entropy_loss"
# A result of which this share or more is read is not worth another indexing.
_MOST_READ = 0.5


class UnreadRow(Struct, frozen=True):
    """op: one that works by row; reader: the op that takes rows of what came of it; read: share of rows it takes.

    A cross entropy is such a reader, too, whatever share it reads: it may ignore the labels of others.
    """

    op: int
    reader: int
    read: float


class Made(Struct):
    """A storage that an op of the loop made. reads: (place of the reader, what it read) in order."""

    at: int
    ref: Ref
    reads: list[tuple[int, Ref]] = field(default_factory=list)
    views: dict[int, Ref] = field(default_factory=dict)  # tensors that look at it and that no op has read yet
    changed: bool = False


# What was made in a step with its readers, and for each op its place among those that are recorded.
Storages = tuple[list[Made], list[int]]


def unread(ops: Sequence[Op], stored: Storages | None = None) -> list[UnreadRow]:
    """Ops of one step, by their place in it. Those of other threads are readers only, and have no place.

    stored: `storages` of these ops, if known.
    """
    made, place = stored or storages(ops)
    results = of_each_op(made)
    found: dict[int, tuple[int, float]] = {}
    masked = _masked(ops)
    for at in reversed(range(len(ops))):
        mine = results.get(at, [])
        if len(mine) == 1 and ops[at].place == "loop" and _by_row(ops[at]):
            share = _read(mine[0], ops, found, masked)
            if share is not None and (share[1] <= _MOST_READ or ops[share[0]].name == _LOSS):
                found[at] = share
    return [UnreadRow(place[at], place[reader], share) for at, (reader, share) in sorted(found.items())]


def of_each_op(made: Iterable[Made]) -> dict[int, list[Made]]:
    """What each op made, by its place."""
    found: dict[int, list[Made]] = {}
    for one in made:
        found.setdefault(one.at, []).append(one)
    return found


def storages(ops: Sequence[Op]) -> Storages:
    """What was made in this step with its readers, and for each op its place among those that are recorded."""
    now: dict[int, Made] = {}
    made: list[Made] = []
    place: list[int] = []
    count = 0
    for at, op in enumerate(ops):
        place.append(count)
        count += op.place != "elsewhere"
        touched = {ref.storage for ref in op.refs}
        looks = any(ref.storage in touched for ref in op.outputs)
        writes = {ref.storage for ref in value_numbering.written(op)}
        for ref in op.refs:
            one = now.get(ref.storage)
            # A backward pass reads what its forward pass kept; it would have kept fewer rows.
            if one is None or op.place == "backward":
                continue
            one.changed |= ref.storage in writes
            one.views.pop(ref.tensor, None)
            if not looks and not value_numbering.reads_form(op):
                one.reads.append((at, ref))
        for ref in op.outputs:
            if ref.storage not in touched:
                now[ref.storage] = Made(at, ref)
                made.append(now[ref.storage])
            elif ref.storage in now and op.place != "backward" and not _assigns(ops, at):
                now[ref.storage].views[ref.tensor] = ref
    return made, place


def _assigns(ops: Sequence[Op], at: int) -> bool:
    """Whether an op writes a part of a tensor that the op before it has picked: `x[:, i] = y` keeps no view of it."""
    op, before = ops[at], ops[at - 1] if at else None
    if op.name != "aten::copy_" or before is None or before.name not in _PICKS or not op.inputs[0]:
        return False
    return [ref.tensor for ref in before.outputs] == [op.inputs[0][0].tensor]


def _by_row(op: Op) -> bool:  # noqa: PLR0911 - a kind of op in each line
    """Whether each row of what an op makes depends on one row of its first argument, and on no other activation."""
    given = [len(argument) for argument in op.inputs]
    if not given or given[0] != 1 or len(op.outputs) != 1:
        return False
    read, wrote = op.inputs[0][0].sizes, op.outputs[0].sizes
    if len(read) < 2 or read[:-1] != wrote[:-1]:
        same = op.name in _RESHAPE and read[-1:] == wrote[-1:]
        return same and len(read) > 1 and math.prod(read) == math.prod(wrote)
    first = (json.loads(op.scalars) or [None])[0]
    if _SOFTMAX.match(op.name):
        return first in (-1, len(read) - 1)
    if op.name.endswith("_norm"):
        return isinstance(first, list) and len(first) == 1
    if op.name in _WITH_NUMBER:
        return all(not ref.sizes for argument in op.inputs[1:] for ref in argument)
    if op.name in _PRODUCTS:
        return given[1:2] == [1] and len(op.inputs[1][0].sizes) == 2
    return op.name in _BY_ROW or op.name in _RESHAPE


def _masked(ops: Sequence[Op]) -> dict[int, float]:
    """Products with a mask of `chosen == i`, by place: the mean share of rows that their masks leave, at most.

    No row is in two of these masks. What was compared is known by its memory until something else is written there.
    """
    written: dict[int, int] = {}  # by storage, how often something was made or written there
    masks: dict[int, _Mask] = {}  # by storage
    products: dict[int, _Mask] = {}
    for at, op in enumerate(ops):
        given = op.refs
        read = [masks[ref.storage] for ref in given if ref.storage in masks]
        made = {ref.storage for ref in op.outputs} - {ref.storage for ref in given}
        made |= {ref.storage for ref in value_numbering.written(op)}
        mask: _Mask | None = None
        if op.name == _EQUAL and op.place == "loop" and len(given) == 1:
            chosen = given[0]
            mask = (chosen.tensor, chosen.storage, written.get(chosen.storage, 0)), op.scalars
        elif op.name in _CASTS and read:
            mask = read[0]
        elif op.name == "aten::mul" and op.place == "loop" and any(_is_column(ref, masks) for ref in given):
            products |= {at: read[0]} if len(read) == 1 else {}
        for storage in made:
            written[storage] = written.get(storage, 0) + 1
            masks.pop(storage, None)
        if mask is not None:
            masks |= dict.fromkeys(made, mask)
    which: dict[object, set[str]] = {}
    for chosen_of, number in products.values():
        which.setdefault(chosen_of, set()).add(number)
    return {at: 1 / len(which[mask[0]]) for at, mask in products.items() if len(which[mask[0]]) > 1}


def _is_column(ref: Ref, masks: dict[int, _Mask]) -> bool:
    """Whether it is a mask that has one number for each row."""
    return ref.storage in masks and len(ref.sizes) > 1 and ref.sizes[-1] == 1


def _read(
    made: Made, ops: Sequence[Op], found: dict[int, tuple[int, float]], masked: dict[int, float]
) -> tuple[int, float] | None:
    """(the op that takes rows of what was made or came of it, share of the rows); None where all may be read."""
    if made.changed or made.views or not made.reads:
        return None
    rows = _rows(made.ref)
    shares: dict[str, float] = {}
    reader, losses = -1, set()
    for at, ref in made.reads:
        through = found.get(at)
        if through is not None and _alike(ref, made.ref) and ops[at].inputs[0][0] is ref:
            reader, shares[str(at)] = through[0], through[1] * _rows(ref) / max(rows, 1)
            losses.add(ops[reader].name == _LOSS)
            continue
        taken = masked[at] * rows if at in masked and _rows(ref) == rows else _taken(ops[at], ref, made.ref)
        if taken is None:
            return None
        # Two ops that read the same part of it read it once; what two ops pick need not be the same.
        form = json.dumps(ref.form[:3]) if ops[at].name not in _TAKE else str(at)  # type: ignore[index]
        reader, shares[form] = at, taken / max(rows, 1)
        losses.add(ops[at].name == _LOSS)
    # Of what a loss reads its labels may leave out some, of what others read they leave out none.
    return (reader, min(sum(shares.values()), 1.0)) if len(losses) == 1 else None


def _taken(op: Op, ref: Ref, made: Ref) -> int | None:
    """How many rows an op takes; None where it reads all, or parts of rows."""
    if op.name in _TAKE and op.inputs[0] and op.inputs[0][0] is ref and len(op.outputs) == 1:
        return _rows(op.outputs[0]) if _alike(op.outputs[0], made) else None
    if op.name == _LOSS and op.inputs[0] and op.inputs[0][0] is ref and ref.sizes[1:2] == made.sizes[-1:]:
        return ref.elements // made.sizes[-1]  # classes are the second dimension
    return _rows(ref) if _alike(ref, made) and _rows(ref) < _rows(made) else None


def _alike(ref: Ref, made: Ref) -> bool:
    """Whether a tensor has whole rows of what was made."""
    return len(ref.sizes) >= 2 and ref.sizes[-1] == made.sizes[-1]


def _rows(ref: Ref) -> int:
    return math.prod(ref.sizes[:-1])


def judge(steps: Sequence[Sequence[UnreadRow]], names: Sequence[Sequence[str]]) -> list[UnreadRow]:
    """Of the last of several steps those ops that computed unread rows in each of them. names: of the ops of each."""
    return [
        UnreadRow(one.op, one.reader, max([one.read, *(each.read for each in theirs)]))
        for one, theirs in in_each(steps, names)
    ]
