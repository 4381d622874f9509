"""Which ops of a step compute something of all pairs, of which only blocks are read: each part with its own.

Pure, like `value_numbering`. The pairs are the first two dimensions of a result; ops work on each pair by itself. As a
matching of boxes does that computes its costs for all pictures of a batch at once, and then takes those of each one.
What Python reads without an op, as `.numpy()` does, is seen as a view: it counts as read, as far as the view reaches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values import unread_rows
from advisor.analyses.dataflow.values.diagonals import BY_PAIR, PRODUCTS

# Of what is read half and more, batches of blocks with padding need about as much.
_MOST_READ = 0.5
# Parts of a tensor that are read one after another; more are a loop over its elements.
_MOST_PARTS = 512


class Block(Struct, frozen=True):
    """op: one that works on pairs;  read: the share of these that is read;  pairs: lengths of both lists."""

    op: int
    read: float
    pairs: tuple[int, int]


def find(ops: Sequence[Op], stored: unread_rows.Storages | None = None) -> list[Block]:
    """Ops of one step, by their place in it. stored: `unread_rows.storages` of these ops, if known."""
    made, place = stored or unread_rows.storages(ops)
    results = unread_rows.of_each_op(made)
    found: dict[int, Block] = {}
    for at in reversed(range(len(ops))):
        mine = results.get(at, [])
        if len(mine) == 1 and ops[at].place == "loop" and (pairs := _pairs(ops[at])):
            read = _read(mine[0], found, pairs)
            if read is not None and read <= _MOST_READ:
                found[at] = Block(place[at], read, pairs)
    return sorted(found.values(), key=lambda one: one.op)


def judge(steps: Sequence[Sequence[Block]], names: Sequence[Sequence[str]]) -> list[Block]:
    """Of the last of several steps those ops of whose pairs all steps read blocks. names: of the ops of each."""
    return [
        Block(one.op, max([one.read, *(each.read for each in theirs)]), one.pairs)
        for one, theirs in in_each(steps, names)
    ]


def _pairs(op: Op) -> tuple[int, int] | None:
    """How many of each list an op makes pairs of; None where it makes something else."""
    sizes = op.outputs[0].sizes
    if len(sizes) < 2 or min(sizes[:2]) < 2 or (op.name in PRODUCTS and len(sizes) > 2):
        return None
    if op.name not in PRODUCTS and (op.name not in BY_PAIR or not _keeps_pairs(op, sizes)):
        return None
    return sizes[0], sizes[1]


def _keeps_pairs(op: Op, sizes: list[int]) -> bool:
    """Whether each argument has these pairs, with more of each where an op sums that up, or is broadcast to them."""
    for given in (ref.sizes for ref in op.refs):
        if len(given) >= 2 and any(mine not in (1, whole) for mine, whole in zip(given, sizes, strict=False)):
            return False
        if len(given) > len(sizes) and given[:2] != sizes[:2]:
            return False
    return True


def _read(made: unread_rows.Made, found: dict[int, Block], pairs: tuple[int, int]) -> float | None:
    """The share of the pairs that is read of what was made, or of what came of it; None where all may be."""
    parts = [*made.views.values(), *(ref for at, ref in made.reads if at not in found)]
    through = [found[at] for at, _ in made.reads if at in found]
    if made.changed or not (parts or through) or any(one.pairs != pairs for one in through):
        return None
    if through and parts:
        return None
    if through:
        return max(one.read for one in through)
    return _covered(made.ref, parts)


def _covered(made: Ref, parts: Sequence[Ref]) -> float | None:
    """The share of a tensor that its parts cover, which must not overlap; None where one is the whole."""
    whole = made.elements
    forms = {str(ref.layout): ref.layout for ref in parts}
    if len(forms) > _MOST_PARTS or any(math.prod(sizes) >= whole for _, sizes, _ in forms.values()):
        return None
    return sum(math.prod(sizes) for _, sizes, _ in forms.values()) / max(whole, 1)
