"""Gradients are clipped more than once for each step of the optimizer.

## What it looks at
Norms of the gradients of many parameters, each followed by a multiplication of the same gradients, as
`clip_grad_norm_` runs them, against the steps of all optimizers.

## Why it costs time
Clipping reads every gradient for its norm and writes each of them again. While gradients accumulate, that comes after
each micro-batch, although only their sum is applied.

## How to fix it
Clip once, after the last micro-batch and before `optimizer.step()`. What accumulates is then clipped as a whole, as a
batch of that size would be; clipped after each micro-batch, earlier ones are scaled down again and again.

## When to leave it
Where gradients of each sample or micro-batch are bounded on purpose, as differential privacy does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    Category,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Nesting,
    Price,
    Steps,
    dims_of,
    dtypes_of,
)

from ..cheaper_equivalents._equivalent import Equivalent, worth
from ..shared._examples import two_steps
from ..shared._words import count

# Of fewer tensors a norm is one of a layer, or a metric.
_TENSORS = 4
_FIX = Fix(
    "Clip the gradients once, before the optimizer's step",
    "semantics",
    "for x, y in micro_batches:\n    (model(x, y) / n).backward()\n    clip_grad_norm_(model.parameters(), 1.0)\n"
    "optimizer.step()",
    "for x, y in micro_batches:\n    (model(x, y) / n).backward()\nclip_grad_norm_(model.parameters(), 1.0)\n"
    "optimizer.step()",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_times: float = 1.5,  # for each optimizer step: fewer may be what the borders of the window cut
    min_share: float = 0.02,  # one line to move; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, steps = price.ops.events, price.ops.steps
    updates = len(_inside(steps, events, np.flatnonzero(events.named("Optimizer.step#"))))
    for norms, scalings in _clippings(events, price.ops.nesting, steps):
        times = min(len(norms), len(scalings)) / max(updates, 1)  # a norm alone is a log
        if not updates or times < min_times:
            continue
        goes = 1 - 1 / times
        one = Equivalent(
            parts=((np.sort(np.concatenate((norms, scalings))), goes, goes),),
            how=f"{count(times)} clippings for each optimizer step, of which one stays",
            claims=("other_ops",),
            shown=norms,
        )
        if known := worth(price, lines, one, min_share):
            tensors = len(dims_of(events, int(norms[0]))[0]) or None
            yield known.finding(
                f"The gradients of {tensors or 'more than 30'} parameters are clipped {count(times)} times for each "
                f"step of the optimizer{known.at}: {known.spent}.",
                {"times": times, "tensors": tensors, "spent_us": known.spent_us},
                _FIX,
            )


def _clippings(events: Events, nesting: Nesting, steps: Steps) -> Iterator[tuple[Ints, Ints]]:
    """(norms, multiplications) within the steps of each list of gradients that has both, outside of optimizers."""
    stepping = nesting.within(events.named("Optimizer.step#"))
    here = events.of(Category.CPU_OP) & nesting.outermost & ~stepping & (events.dims >= 0)
    here &= events.thread == steps.main_thread
    norms, scalings = (
        _by_list(events, _inside(steps, events, np.flatnonzero(here & events.exactly(name))))
        for name in ("aten::_foreach_norm", "aten::_foreach_mul_")
    )
    yield from ((rows, scalings[tensors]) for tensors, rows in norms.items() if tensors in scalings)


def _inside(steps: Steps, events: Events, rows: Ints) -> Ints:
    """Those that begin within the steps."""
    return rows[steps.step_of(events.start_ns[rows]) >= 0]


def _by_list(events: Events, rows: Ints) -> dict[str, Ints]:
    """The rows by the shapes of the list of tensors that they are given first, where it is long enough."""
    found: dict[str, list[int]] = {}
    for row in rows.tolist():
        shapes, kinds = dims_of(events, row)[:1], dtypes_of(events, row)[:1]
        # Of a list of more than 30 tensors Kineto writes no shapes: its type is all that is left.
        if len(shapes[0] if shapes else ()) >= _TENSORS or (kinds == ["TensorList"] and shapes == [[]]):
            found.setdefault(str(shapes), []).append(row)
    return {tensors: np.array(mine, np.int64) for tensors, mine in found.items()}


_LIST: Any = [[64, 64], [64], [64, 64], [64]]
_OPS: dict[str, Any] = {
    "N": Ev("aten::_foreach_norm", dims=[_LIST, [], []]),
    "M": Ev("aten::_foreach_mul_", dims=[_LIST, []]),
}
_LONG: dict[str, Any] = {
    "N": Ev("aten::_foreach_norm", dims=[[], [], []], dtypes=["TensorList", "Scalar", ""]),
    "M": Ev("aten::_foreach_mul_", dims=[[], []], dtypes=["TensorList", "float"]),
}

EXAMPLES = [
    Example(
        "after each of two micro-batches",
        two_steps("[F  ][B  ][N ][M ][F  ][B  ][N ][M ][O  ]", **_OPS),
        saves_us=(500, 900),
        says=("The gradients of 4 parameters are clipped 2 times for each step",),
    ),
    Example(
        "the same of so many parameters that no shapes are recorded",
        two_steps("[F  ][B  ][N ][M ][F  ][B  ][N ][M ][O  ]", **_LONG),
        saves_us=(500, 900),
        says=("The gradients of more than 30 parameters",),
    ),
    Example("once before the step", two_steps("[F  ][B  ][F  ][B  ][N ][M ][O  ]", **_OPS)),
    Example(
        "the norm is logged after each micro-batch, and the gradients are clipped once",
        two_steps("[F  ][B  ][N ][F  ][B  ][L ][M ][O  ]", **(_OPS | {"L": _OPS["N"]})),
        near_miss=True,
    ),
    Example(
        "two optimizers, each with its own gradients",
        two_steps("[F  ][B  ][N ][M ][O  ][F  ][B  ][N ][M ][O  ]", **_OPS),
        near_miss=True,
    ),
]
