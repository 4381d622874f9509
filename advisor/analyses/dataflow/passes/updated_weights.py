"""Which ops of a step compute what an earlier one had, but for weights that an optimizer has changed since.

Pure, like `value_numbering`, which it asks as if no optimizer had written: what has the same value then and another one
in truth reads the same inputs with the weights of before the update and of after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.value_numbering import Op, written
from advisor.analyses.dataflow.values import repeated_values


def find(
    steps: Sequence[Sequence[Op]], known: set[tuple[int, int]], still: set[int], again: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """(op, the earlier one) of the last step, as `repeated_values.Found.again`. again: pairs that are equal in truth.

    What depends on weights alone (a norm of them, a transpose) has no input that could be the same.
    """
    weights = {ref.storage for ops in steps for op in ops if op.place == "optimizer" for ref in written(op)}
    if not weights:
        return []
    unwritten = [[_unwritten(op) if op.place == "optimizer" else op for op in ops] for ops in steps]
    found = repeated_values.judge(value_numbering.number(unwritten, known, still | weights))
    equal, alone = set(again), set(found.constant)
    return [pair for pair in found.again if pair not in equal and pair[0] not in alone]


def _unwritten(op: Op) -> Op:
    """An op in the same place that reads, makes and writes nothing."""
    return replace(op, inputs=(), outputs=(), casts=())
