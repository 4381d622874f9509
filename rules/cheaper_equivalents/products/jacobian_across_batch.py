"""A Jacobian between all samples of a batch is computed for each sample's part.

## What it looks at
A tensor of shape (batch, outputs, batch, inputs), or (batch, batch, inputs) for a single output, of which an index, a
diagonal or a sum takes one place of the batch's two, and backward passes that go through one graph as often as the
batch has outputs in all.

## Why it costs time
`torch.autograd.functional.jacobian` runs a backward pass for each output of each sample, and each pass goes through the
whole batch. Where samples do not depend on each other, all parts but those of a sample by itself are zero: of 64
samples, 63 in 64 passes compute nothing that anything reads. With `create_graph=True` all of it is recorded and
differentiated again.

## How to fix it
`torch.func.vmap(torch.func.jacrev(function))(x)`, which has one pass for each output of a sample. Or take the gradient
of the sum over the batch, `torch.autograd.grad(y[:, i].sum(), x)`, for each output i.

## When to leave it
Where samples depend on each other: batch normalization in training mode, graphs whose nodes are the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import Drawing, Ev, Example, Finding, Fix, Ints, Lines, Price, RowMask, backward_of, times_gone_through

from ...shared._examples import node, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, worth
from ._own_parts import read_apart

_FIX = Fix(
    "Compute the Jacobian of each sample by itself",
    "numerics",
    "rows = torch.arange(len(x))\nown = jacobian(function, x)[rows, :, rows]",
    "own = torch.func.vmap(torch.func.jacrev(function))(x)  # function: of one sample",
)

_FIX_OF_ONE = Fix(
    "Take the gradient of the sum over the batch",
    "numerics",
    "own = torch.diagonal(jacobian(energy, x), dim1=0, dim2=1)  # energy: a number for each sample",
    "own = torch.autograd.grad(energy(x).sum(), x)[0]  # create_graph=True where it is part of the loss",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a function to rewrite for one sample, which less than 3 % of the step does not justify
) -> Iterator[Finding]:
    rows, times = times_gone_through(price.ops.events, price.ops.steps)
    parts, batches, passes, most = [], [], 0, 0
    for batch, outputs in sorted(read_apart(price)):
        # The training goes through the graph once more where the Jacobian is part of its loss.
        mine = rows[(times == batch * outputs) | (times == batch * outputs + 1)]
        if not len(mine):
            continue
        inside = np.flatnonzero(price.ops.nesting.within(_mask(price, mine)))
        every = np.unique(np.concatenate((mine, backward_of(price.ops.events, inside))))
        parts.append((every, 1 - 1 / batch, 1 - 1 / batch))
        batches.append(batch)
        passes, most = max(passes, batch * outputs), max(most, outputs)
    if not parts:
        return
    one = Equivalent(
        parts=tuple(parts),
        how="all backward passes of the Jacobian, and of what they record, but those that one sample needs",
        claims=("forward", "backward", "other_ops"),
        shown=np.concatenate([rows for rows, _, _ in parts]),
    )
    if known := worth(price, lines, one, min_share):
        yield known.finding(
            f"A Jacobian between all {max(batches)} samples of a batch is computed{known.at} in {count(passes)} "
            f"backward passes, and only each sample's own part of it is read: {known.spent}.",
            {"batch": max(batches), "passes": passes, "spent_us": known.spent_us},
            _FIX if most > 1 else _FIX_OF_ONE,
        )


def _mask(price: Price, rows: Ints) -> RowMask:
    mask = np.zeros(len(price.ops.events), bool)
    mask[rows] = True
    return mask


def _drawn(shape: list[int], passes: int, reads: str = "index") -> Drawing:
    """A layer (F), passes through its node (X), what reads a part of their results (I), and the rest of the step."""
    nodes = "".join(f"[{'X':<3}]" for _ in range(passes))
    return two_steps(f"[F  ]{nodes}[I ][B  ][O ]", F=_LAYER, X=node(1, "TanhBackward0"), I=op(reads, shape, []))


_LAYER: Ev = op("tanh", [4, 2], number=1)

EXAMPLES = [
    Example(
        "eight passes for four samples of two outputs",
        _drawn([4, 2, 4, 3], 8),
        saves_us=(2500, 3200),
        says=("all 4 samples", "8 backward passes"),
        fixes=("of each sample by itself",),
    ),
    Example(
        "an energy of each sample: one output",
        _drawn([8, 8, 6, 3], 8, "diagonal"),
        saves_us=(3200, 3600),
        says=("all 8 samples", "8 backward passes"),
        fixes=("gradient of the sum",),
    ),
    Example("a sum takes each sample's own part", _drawn([4, 2, 4, 3], 8, "sum"), saves_us=(2500, 3200)),
    Example("one pass for each output", _drawn([4, 2, 3], 2)),
    Example("a Jacobian of one vector, all of which is read", _drawn([8, 3], 8), near_miss=True),
    Example("equal sizes without a pass for each", _drawn([4, 2, 4, 3], 2), near_miss=True),
]
