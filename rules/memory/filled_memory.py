"""Each new tensor is filled before it is written.

## What it looks at
Fills that `torch.empty` itself makes, and the device's time in them. Only `torch.use_deterministic_algorithms(True)`
brings them, with `torch.utils.deterministic.fill_uninitialized_memory`, which is on by default.

## Why it costs time
An op writes all of its result, so that what it was filled with before is never read. On a device each fill is a kernel
of its own, which writes as many bytes as the op does.

## How to fix it
`torch.utils.deterministic.fill_uninitialized_memory = False`. Deterministic algorithms stay on, and results the same.

## When to leave it
Code of one's own that reads a tensor of `torch.empty` before it writes it: the fill is what makes that reproducible.
On a CPU this is not reported: what a fill takes is mostly the first touch of new memory, which the op then pays
instead. Six small networks on two cores gained -4 to 11 % of a step without fills, three of them nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from advisor.api import ELEMENTWISE, GEMM, Category, Drawing, Ev, Example, Finding, Fix, Lines, Price, draw

from ..cheaper_equivalents._equivalent import Equivalent, whole, worth
from ..shared._words import plural

CONFIRMED = ""

# Under deterministic algorithms these fill what they return (aten/src/ATen/native/cuda/TensorFactories.cu), and ops
# that make their result without a row of these do so themselves (torchgen, structured kernels).
_EMPTY = ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty")
# What these fill somebody wants filled.
_WANTED = re.compile(r"aten::((new_)?(zero|ones|full)|fill$|constant_pad|eye|index_fill|masked_fill)")
_FIX = Fix(
    "Leave new tensors as they are: no op reads them before it writes them",
    "exact",
    "torch.use_deterministic_algorithms(True)",
    "torch.use_deterministic_algorithms(True)\ntorch.utils.deterministic.fill_uninitialized_memory = False",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.01,  # one line that changes no result; less is within the noise between steps
) -> Iterator[Finding]:
    if not price.on_device:
        return
    events, links = price.ops.events, price.ops.links
    fills = events.of(Category.CPU_OP) & events.exactly("aten::fill_") & links.inside
    nesting = price.ops.nesting
    if not (fills & nesting.within(events.exactly(*_EMPTY))).any():
        return
    rows = np.flatnonzero(fills & ~nesting.within(events.rows_with(events.names_where(_WANTED.match))))
    one = Equivalent(parts=whole(rows), how="the step replayed without the fills of new tensors", shown=rows)
    if known := worth(price, lines, one, min_share):
        times = len(rows) / price.ops.steps.count
        yield known.finding(
            f"`torch.empty` fills {plural(round(times), 'new tensor')} in each step, as deterministic algorithms are "
            f"on: {known.spent}.",
            {"fills": times, "spent_us": known.spent_us},
            _FIX,
        )


def _drawn(outer: str) -> Drawing:
    return draw(
        """
        step   [1                            ][2                            ]
        cpu    [T      ][F ]                  [T      ][F ]
        cpu     [L    ]                        [L    ]
        gpu 7       [K     ][G              ]      [K     ][G              ]
        """,
        us=10,
        T=Ev(outer, launches=""),
        L=Ev("aten::fill_", launches="kernel"),
        K=ELEMENTWISE,
        G=GEMM,
    )


def _drawn_without() -> Drawing:
    return draw(
        """
        step   [1                     ][2                     ]
        cpu    [T ][F ]                [T ][F ]
        gpu 7       [G              ]       [G              ]
        """,
        us=10,
        T=Ev("aten::empty", launches=""),
        G=GEMM,
    )


EXAMPLES = [
    Example(
        "a fill inside `torch.empty`",
        _drawn("aten::empty"),
        saves_us=(0, 75),
        says=("fills 1 new tensor",),
        fixes=("fill_uninitialized_memory = False",),
    ),
    Example("no fill in an op that makes a tensor", _drawn_without()),
    Example("a fill that the script asked for", _drawn("aten::zeros"), near_miss=True),
    Example(
        "the same fills on a CPU, where they pay for memory that is touched first",
        draw(
            """
            step   [1                     ][2                     ]
            cpu    [F ][T      ][F ]       [F ][T      ][F ]
            cpu         [L    ]                 [L    ]
            """,
            us=10,
            T=Ev("aten::empty"),
            L=Ev("aten::fill_"),
        ),
        near_miss=True,
    ),
]
