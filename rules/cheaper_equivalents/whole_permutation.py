"""A permutation of the whole dataset is drawn to take one batch of it.

## What it looks at
`torch.randperm(n)` in the training loop, directly followed by a slice of its result and by an op that takes elements
out of a tensor by it: `data[torch.randperm(n)[:k]]`. At least every second step does it, and at most half of the
numbers are taken. Shapes are needed (`record_shapes=True`; `advisor run` records them).

## Why it costs time
A permutation of n numbers draws n random numbers and moves n entries. For a batch of 256 out of a million that is four
thousand times the work that the batch needs, in each step.

## How to fix it
Draw only the indices of the batch, with replacement: `index = torch.randint(n, (batch,))`. Or draw one permutation for
an epoch, and take its pieces: `for index in torch.randperm(n).split(batch):`, which also sees every sample once.

## When to leave it
If no sample may occur twice within a batch and the dataset is small. Either change draws different samples, so losses
change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import Example, Finding, Fix, Lines, Price, dims_of, sizes

from ..shared._examples import op, two_steps
from ..shared._words import count, plural
from ._equivalent import Equivalent, rows_of, worth

_PERMUTATION, _SLICE = "aten::randperm", "aten::slice"
_TAKES = ("aten::index", "aten::index_select", "aten::embedding")
_HOW = (
    "low: the permutations without the share that is taken, which is half at most; high: all of their time except the "
    "draw that replaces them"
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one line to change; below 2 % of the step the gain is within the noise between steps
    most_taken: float = 0.5,  # of the numbers: with more, drawing with replacement repeats many of them
    min_rate: float = 0.5,  # permutations per step: a rarer one may be that of an epoch, which uses all of it
) -> Iterator[Finding]:
    found = [one for one in _permutations(price) if one.taken is None or one.taken <= most_taken * one.of]
    calls = len(found) / price.ops.steps.count
    if calls < min_rate:
        return
    least, most = price.added.calls_us("op_calls.single")
    one = Equivalent(
        parts=tuple((rows_of(one.row), 1 - one.share(most_taken), 1 - one.share(0.0)) for one in found),
        how=_HOW,
        claims=("forward", "other_ops"),
        instead_us=(calls * least, calls * most),
        timed_on_device=False,
    )
    if known := worth(price, lines, one, min_share):
        largest = max(found, key=lambda one: one.of)
        taken = "" if largest.taken is None else f", of which {count(largest.taken)} are taken"
        number = "batch" if largest.taken is None else count(largest.taken)
        yield known.finding(
            f"{plural(round(calls, 1), 'permutation')} of {count(largest.of)} numbers a step{known.at}{taken}: "
            f"{known.spent}.",
            {"permutations": calls, "numbers": largest.of, "taken": largest.taken, "spent_us": known.spent_us},
            Fix(
                "Draw only the indices of the batch, or one permutation per epoch",
                "semantics",
                f"index = torch.randperm(len(data))[:{number}]",
                f"index = torch.randint(len(data), ({number},))",
            ),
        )


class _Permutation(Struct, frozen=True):
    """row: of the op; of: how many numbers it draws; taken: how many of them are taken, None where not known."""

    row: int
    of: int
    taken: int | None

    def share(self, unknown: float) -> float:
        """The share of the numbers that is taken; `unknown` where it is not known."""
        return unknown if self.taken is None else self.taken / self.of


def _permutations(price: Price) -> Iterator[_Permutation]:
    """Those of which one slice alone is used as an index."""
    ops, events = price.ops, price.ops.events
    rows = ops.outermost
    rows = rows[events.thread[rows] == ops.steps.main_thread]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    for at in np.flatnonzero(events.exactly(_PERMUTATION)[rows[:-2]]).tolist():
        row, sliced, takes = rows[at : at + 3].tolist()
        if events.text(sliced) != _SLICE or events.text(takes) not in _TAKES:
            continue
        of = sizes(dims_of(events, sliced), 0)
        if len(of) == 1:
            yield _Permutation(row, of[0], _taken(price, takes, of[0]))


def _taken(price: Price, row: int, of: int) -> int | None:
    """How many elements an op takes by an index: the length of the one list of numbers that it looks at inside."""
    events, nesting = price.ops.events, price.ops.nesting
    inside = np.flatnonzero((nesting.outer_op == row) & (events.dims >= 0)).tolist()
    looked = [sizes(dims_of(events, inner), 0) for inner in inside]
    lengths = {one[0] for one in looked if len(one) == 1 and 0 < one[0] < of}
    return lengths.pop() if len(lengths) == 1 else None


# The permutation (S), its beginning (P), what it takes out of the data (R), a layer (F), the backward pass (B).
_LANE = "[S        ][P][R  ][F    ][B   ]"
_OPS: dict[str, Any] = {"S": op("randperm", []), "P": op("slice", [100000]), "R": op("index", [100000, 8], [])}


EXAMPLES = [
    Example(
        "a batch of 100,000 samples",
        two_steps(_LANE, **_OPS),
        saves_us=(450, 1300),
        says=("1 permutation of 100,000 numbers a step",),
        fixes=("torch.randint",),
    ),
    Example(
        "a permutation that is split, as an epoch takes it",
        two_steps(_LANE, **_OPS | {"P": op("split", [100000])}),
        None,
        near_miss=True,
    ),
    Example(
        "two parts of it, for training and validation",
        two_steps(_LANE, **_OPS | {"R": op("slice", [100000])}),
        None,
        near_miss=True,
    ),
    Example("random indices", two_steps("[S ][R  ][F    ][B   ]", S=op("randint", []), R=_OPS["R"]), None),
]
