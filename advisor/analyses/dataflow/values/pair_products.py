"""Which ops of a step write out the products of all pairs of rows of one tensor, to sum them.

Pure, like `value_numbering`. Two ops take rows of one tensor along one dimension, each as many as that has pairs; only
a product reads what they took, and only a sum the product: `(x[:, i] * x[:, j]).sum(1)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec import Struct

from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op
from advisor.analyses.dataflow.values import unread_rows

_TAKE = ("aten::index", "aten::index_select")
_SUMS = ("aten::sum", "aten::mean")
# Of fewer rows as many products are written by hand.
_FEWEST_ROWS = 4


class PairProduct(Struct, frozen=True):
    """op: the product; ops: what takes the rows, the product and the sum, in order.

    rows, pairs, numbers: of one sample its rows, the pairs of them, and what the last dimension holds of each
    summed: the sum goes over the pairs, and not over the numbers of each pair alone
    """

    op: int
    ops: tuple[int, ...]
    rows: int
    pairs: int
    numbers: int
    summed: bool


def find(ops: Sequence[Op], stored: unread_rows.Storages) -> list[PairProduct]:
    """Those of one step, by their place in it. stored: `unread_rows.storages` of its ops."""
    return list(_found(ops, stored))


def judge(steps: Sequence[Sequence[PairProduct]], names: Sequence[Sequence[str]]) -> list[PairProduct]:
    """Of the last of several steps those that each of them has. names: of the ops of each."""
    return [one for one, _ in in_each(steps, names)]


def _found(ops: Sequence[Op], stored: unread_rows.Storages) -> Iterator[PairProduct]:
    made, place = stored
    results = {at: mine[0] for at, mine in unread_rows.of_each_op(made).items() if len(mine) == 1}
    takes: dict[int, list[int]] = {}  # product -> what only it reads
    for at, one in results.items():
        if ops[at].name in _TAKE and len(one.reads) == 1:
            takes.setdefault(one.reads[0][0], []).append(at)
    for product, both in takes.items():
        result = results.get(product)
        if ops[product].name != "aten::mul" or len(both) != 2 or result is None or len(result.reads) != 1:
            continue
        total = result.reads[0][0]
        known = _pairs(ops[both[0]], ops[both[1]])
        if known is None or ops[total].name not in _SUMS or result.views:
            continue
        dim, rows, pairs = known
        every = (*both, product, total)
        sizes, where = ops[product].outputs[0].sizes, tuple(place[at] for at in every)
        numbers = sizes[-1] if dim < len(sizes) - 1 else 1
        yield PairProduct(place[product], where, rows, pairs, numbers, _sums(ops[total], dim))


def _pairs(one: Op, other: Op) -> tuple[int, int, int] | None:
    """(dimension, rows, pairs) where both take as many rows of one tensor as it has pairs of them."""
    given, same = one.inputs[0], other.inputs[0]
    if len(given) != 1 or [(ref.storage, ref.form) for ref in given] != [(ref.storage, ref.form) for ref in same]:
        return None
    before, after = given[0].sizes, one.outputs[0].sizes
    if after != other.outputs[0].sizes or len(before) != len(after):
        return None
    changed = [at for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if len(changed) != 1 or len(before) < 2:
        return None
    rows, pairs = before[changed[0]], after[changed[0]]
    if rows < _FEWEST_ROWS or pairs not in (rows * (rows - 1) // 2, rows * (rows + 1) // 2):
        return None
    return changed[0], rows, pairs


def _sums(total: Op, dim: int) -> bool:
    """Whether a sum goes over this dimension: over all, where it names none."""
    first = json.loads(total.scalars)[:1]
    named = first[0] if first and isinstance(first[0], list) else None
    length = len(total.inputs[0][0].sizes)
    return not named or dim in [one % length for one in named]
