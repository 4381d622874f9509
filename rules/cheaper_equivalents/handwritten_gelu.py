"""GELU is written out in elementwise ops.

## What it looks at
A `tanh` or `erf` in the middle of multiplications and additions on tensors of one shape, with no other op between, as
the two formulas of GELU are written: `0.5 * x * (1 + torch.tanh(0.798 * (x + 0.0447 * x**3)))` and
`0.5 * x * (1 + torch.erf(x / 1.414))`. Their part of the backward pass belongs to them. A cell that also uses
`sigmoid`, as LSTM and GRU do, is another thing. Needs recorded shapes.

## Why it costs time
Each of these ops reads whole tensors from memory and writes one, forward and backward, where one kernel reads the input
once. Each also keeps a tensor for the backward pass: eight times the memory of one.

## How to fix it
`F.gelu(x, approximate="tanh")` for the formula with `tanh`, `F.gelu(x)` for the one with `erf`; `nn.GELU` as a module.

## When to leave it
Where the last bits must be those of another implementation, for a checkpoint that is compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    Drawing,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    StepOps,
    constant,
    dims_of,
    sizes,
    with_backward,
)

from ..shared._examples import node, op, two_steps
from ..shared._words import often
from ._equivalent import Equivalent, worth

# The share of the written-out form's time, forward and backward, that `F.gelu` saved.
_SAVED = {"tanh": constant("share.written_out_gelu_tanh").range, "erf": constant("share.written_out_gelu_erf").range}
_ELEMENTWISE = frozenset(f"aten::{name}" for name in ("mul", "add", "pow", "div", "tanh", "erf"))
# Ops of the shortest usual way to write each: a half, the cube, its factor, the sum, its factor, one more, the product;
# and a half, the quotient, one more, the product.
_LEAST = {"aten::tanh": 7, "aten::erf": 4}
# No way to write it takes more on either side.
_REACH = 8
_HOW = "the share of these ops' time, backward pass included, that F.gelu saved in measurements on a CPU"


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one line, and the same result; below 2 % noise between steps hides it
) -> Iterator[Finding]:
    found = list(_written_out(price.ops))
    if not found:
        return
    rows = np.unique(np.concatenate(found))
    events = price.ops.events
    formula = "tanh" if any(events.text(int(row)) == "aten::tanh" for row in rows) else "erf"
    one = Equivalent(
        parts=((with_backward(events, rows), *_SAVED[formula]),),
        how=_HOW,
        shown=rows,
        timed_on_device=False,
    )
    if known := worth(price, lines, one, min_share):
        calls, each = len(found) / price.ops.steps.count, len(rows) / len(found)
        yield known.finding(
            f"GELU is computed in {each:.0f} ops{known.at}, {often(calls)}: {known.spent}, backward pass included.",
            {"calls": calls, "ops": each, "gelu_us": known.spent_us},
            _fix(formula),
        )


def _written_out(ops: StepOps) -> Iterator[Ints]:
    """The ops of each GELU that is written out."""
    rows, events = ops.outermost, ops.events
    wanted = np.flatnonzero(events.exactly(*_LEAST)[rows])
    for at in wanted.tolist():
        shape = sizes(dims_of(events, int(rows[at])), 0)
        first, last = at, at
        while first > max(at - _REACH, 0) and _belongs(ops, int(rows[first - 1]), shape):
            first -= 1
        while last < min(at + _REACH, len(rows) - 1) and _belongs(ops, int(rows[last + 1]), shape):
            last += 1
        mine = rows[first : last + 1]
        names = [events.text(int(row)) for row in mine]
        middle = events.text(int(rows[at]))
        # The sum with one and the product with the input come after it.
        after = names[at - first + 1 :]
        one = names.count("aten::tanh") + names.count("aten::erf") == 1
        if one and len(mine) >= _LEAST[middle] and "aten::add" in after and "aten::mul" in after:
            yield mine


def _belongs(ops: StepOps, row: int, shape: tuple[int, ...]) -> bool:
    """Whether this op takes tensors of that shape and numbers, element by element."""
    if not shape or ops.events.text(row) not in _ELEMENTWISE:
        return False
    dims = dims_of(ops.events, row)
    tensors = [size for at in range(len(dims)) if (size := sizes(dims, at))]
    return bool(tensors) and all(size == shape for size in tensors)


def _fix(formula: str) -> Fix:
    if formula == "tanh":
        return Fix(
            'Use `F.gelu(x, approximate="tanh")`',
            "numerics",
            "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))",
            'F.gelu(x, approximate="tanh")',
        )
    return Fix("Use `F.gelu(x)`", "numerics", "0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "F.gelu(x)")


_X = [8, 128, 384]
_STEP = "[F    ][H ][P ][S ][A ][T ][C ][O ][M ][D    ][Y  ]"


def _drawn(**changed: Any) -> Drawing:
    """A layer (F), then half of it (H), its cube (P), scaled (S), added (A), scaled (T), tanh (C), and so on."""
    ops: dict[str, Any] = {
        "F": op("linear", [8, 128, 96], [384, 96], [384], number=1),
        "H": op("mul", _X, [], number=2),
        "P": op("pow", _X, [], number=3),
        "S": op("mul", _X, [], number=4),
        "A": op("add", _X, _X, [], number=5),
        "T": op("mul", _X, [], number=6),
        "C": op("tanh", _X, number=7),
        "O": op("add", _X, [], [], number=8),
        "M": op("mul", _X, _X, number=9),
        "D": node(9, "MulBackward0"),
        "Y": node(1),
    }
    return two_steps(_STEP, **(ops | changed))


EXAMPLES = [
    Example("the formula with tanh", _drawn(), saves_us=(1500, 3600), says=("8 ops", "once a step")),
    Example(
        "the cell of an LSTM by hand",
        _drawn(P=op("sigmoid", _X, number=3), A=op("sigmoid", _X, number=5)),
        near_miss=True,
    ),
    Example("a gate of another shape between them", _drawn(A=op("add", _X, [384], [], number=5)), near_miss=True),
    Example("one kernel", two_steps("[F   ][G  ][Y   ]", G=op("gelu", _X, number=2), Y=node(1))),
]
