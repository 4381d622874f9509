"""Tensors are copied within the GPU to change their layout, or for no reason.

## What it looks at
Copies of tensors on the same device: `contiguous()`, `clone()`, `reshape()` of a tensor with another memory order, and
copies from device to device, with the time for which the device does nothing else. Conversions to another number
format do not count. Copies directly after one another are counted as chains.

## Why it costs time
Each copy reads and writes the whole tensor, and computes nothing. After a transpose, `contiguous()` reads with large
strides, at a fraction of the memory bandwidth. Its gradient is copied as well.

## How to fix it
Matrix multiplications, attention and most ops read transposed tensors as they are: leave `contiguous()` out before
them, and use `reshape()`, which copies only where it must. Let a projection write the layout that is needed next. Of
two copies in a row one is enough. `torch.compile` writes results in the layout that the next op reads.

## When to leave it
Libraries that require contiguous tensors, tensors that are then read many times, and copies that keep a value which is
overwritten afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    SYNC,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    Source,
    draw,
    edits,
    subtract,
    total,
)

from ..shared._places import place
from ..shared._repeated_heads import repeated_heads
from ..shared._words import count, each_step, often

CONFIRMED = "real traces: Qwen on an H100 and segment-anything on an A100, whose copies the raw events show as well"


# Whose copies change a layout or keep a value; a conversion (`aten::_to_copy`) writes other numbers.
_LAYOUT = ("aten::contiguous", "aten::clone", "aten::reshape")
# aten/src/ATen/native/cuda/SoftMax.cu, `host_softmax`: `auto input = input_.contiguous()`; layer_norm.cpp,
# `native_layer_norm`: `expect_contiguous()`.
_MAKES_CONTIGUOUS = ("aten::_softmax", "aten::_log_softmax", "aten::native_layer_norm")
_CONVERSION = ("aten::to", "aten::_to_copy")


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # some copies are needed: below 3 % of the step looking for the others is not worth it
) -> Iterator[Finding]:
    if not price.on_device:
        return
    events, steps, scale = price.ops.events, price.ops.steps, price.scale
    # Copies that repeat heads are needed for that, and have a rule of their own.
    copies = np.setdiff1d(_copies(price), price.ops.launched(repeated_heads(price.ops)[0]))
    rows = _without_moved(price, copies)
    if not len(rows):
        return
    others = price.ops.trace.device_work.copy()
    others[rows] = False
    alone = subtract(events.covered(rows), events.covered(others))
    spent_us = steps.per_step_us(total(alone)) * price.ops.longer
    if spent_us < min_share * steps.step_us:
        return
    how = "low: they are all needed; high: the step without these copies"
    saving = price.saving([], [edits.remove(rows)], (), how, model_us=(0.0, spent_us), bound_us=spent_us)
    if saving.high_us < min_share * scale.step_us:
        return
    chained = _chained(price, rows)
    where = _costliest(price, lines, rows)
    after = f", {count(chained / steps.count)} of them directly after another" if chained else ""
    yield Finding(
        message=(
            f"Tensors are copied within the GPU {often(len(rows) / steps.count)}{after}{place(where)}: for "
            f"{each_step(price, spent_us)} it does nothing "
            "else."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"copies": len(rows) / steps.count, "chained": chained / steps.count, "exposed_us": spent_us},
        fix=Fix(
            "Remove `contiguous()` if the next op accepts strided tensors",
            "numerics",
            "q = q.transpose(1, 2).contiguous()\ny = F.scaled_dot_product_attention(q, k, v)",
            "q = q.transpose(1, 2)\ny = F.scaled_dot_product_attention(q, k, v)",
        ),
        claims=("compute", "exposed_copy"),
        at_most="medium",  # which of them are needed no trace tells
    )


def _copies(price: Price) -> Ints:
    """Device work of the steps that copies on one device: by the op around its launch, conversions left out."""
    events, nesting, links = price.ops.events, price.ops.nesting, price.ops.links
    work = np.flatnonzero(price.ops.trace.device_work & links.inside & (links.launch >= 0))
    op = nesting.parent[links.launch[work]]
    copying = (op >= 0) & events.exactly("aten::copy_")[np.maximum(op, 0)]
    layout = nesting.ancestor_of(op, events.exactly(*_LAYOUT)) >= 0
    converting = nesting.ancestor_of(op, events.exactly(*_CONVERSION)) >= 0
    over_the_bus = (events.of(Category.MEMCPY) & ~events.named("DtoD"))[work]
    within: Ints = work[copying & layout & ~converting & ~over_the_bus]
    return within


def _without_moved(price: Price, rows: Ints) -> Ints:
    """Without those whose next op makes its input contiguous itself: left out, they would be made there."""
    events, links, nesting = price.ops.events, price.ops.links, price.ops.nesting
    work = np.flatnonzero(price.ops.trace.device_work & links.inside & (links.launch >= 0))
    order = work[np.lexsort((events.start_ns[work], events.thread[work]))]
    at = np.flatnonzero(np.isin(order, rows))
    following = order[np.minimum(at + 1, len(order) - 1)]
    op = nesting.parent[links.launch[following]]
    moved = (op >= 0) & events.exactly(*_MAKES_CONTIGUOUS)[np.maximum(op, 0)]
    found: Ints = order[at[~moved]]
    return found


def _chained(price: Price, rows: Ints) -> int:
    """How many of these copies follow another one on their stream with nothing between."""
    events = price.ops.events
    work = np.flatnonzero(price.ops.trace.device_work & price.ops.links.inside)
    order = work[np.lexsort((events.start_ns[work], events.thread[work]))]
    mine = np.isin(order, rows)
    return int((mine[1:] & mine[:-1] & (events.thread[order[1:]] == events.thread[order[:-1]])).sum())


def _costliest(price: Price, lines: Lines | None, rows: Ints) -> Source | None:
    """The line whose copies take longest, where lines are known."""
    events, links, nesting = price.ops.events, price.ops.links, price.ops.nesting
    if lines is None or not lines.available:
        return None
    spent: dict[Source, int] = {}
    for row in rows.tolist():
        outer = int(nesting.outer_op[links.launch[row]])
        where = lines.where_op(outer) if outer >= 0 else None
        if where is not None:
            spent[where] = spent.get(where, 0) + int(events.dur_ns[row])
    return max(spent, key=spent.__getitem__, default=None)


_STEPS = """
    step   [1                             ][2                             ]
    cpu    [F  ][C       ][B   ][W      ]   [F  ][C       ][B   ][W      ]
    cpu          [L     ]                         [L     ]
    cpu           [O   ]                           [O   ]
    gpu 7   [K    ]   [D     ][K      ]      [K    ]   [D     ][K      ]
    """
_CONTIGUOUS, _CLONE, _TO = (Ev(name, launches="") for name in ("aten::contiguous", "aten::clone", "aten::_to_copy"))
_COPY, _BACKWARD = Ev("aten::copy_", launches="kernel"), Ev(BACKWARD.name, launches="kernel")
_STRIDED = Ev("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>", "kernel")

EXAMPLES = [
    Example(
        "a transposed tensor is made contiguous in each step",
        draw(_STEPS, us=100, C=_CONTIGUOUS, L=_CLONE, O=_COPY, B=_BACKWARD, D=_STRIDED, W=SYNC),
        saves_us=(0, 850),
        says=("copied within the GPU once a step",),
    ),
    Example(
        "the same beside a kernel that takes longer",
        draw(
            _STEPS + "    gpu 20         [H          ]                    [H          ]\n",
            us=100,
            F=Ev(FORWARD.name, times=2),
            C=_CONTIGUOUS,
            L=_CLONE,
            O=_COPY,
            B=_BACKWARD,
            D=_STRIDED,
            W=SYNC,
            H=GEMM,
        ),
        near_miss=True,
    ),
    Example(
        "a transposed tensor is made contiguous before a softmax, which would do it itself",
        draw(
            _STEPS,
            us=100,
            C=_CONTIGUOUS,
            L=_CLONE,
            O=_COPY,
            B=Ev("aten::_log_softmax", launches="kernel"),
            D=_STRIDED,
            W=SYNC,
        ),
        near_miss=True,
    ),
    Example(
        "a conversion to another number format",
        draw(_STEPS, us=100, C=Ev("aten::to", launches=""), L=_TO, O=_COPY, B=_BACKWARD, D=_STRIDED, W=SYNC),
        near_miss=True,
    ),
    Example(
        "tensors are read as they are",
        draw(
            "step [1           ][2           ]\ncpu  [F ][B  ]     [F ][B  ]\ngpu 7  [K ][K   ]    [K ][K   ]",
            us=100,
            B=_BACKWARD,
        ),
    ),
]
