"""Keys and values are copied for the query heads that share them.

## What it looks at
Copies of a tensor with an axis for the heads of a group, `[batch, shared heads, group, tokens, width]`, whose result
has the shape of the keys of the next `scaled_dot_product_attention`: `repeat_interleave`, or `expand` and `reshape`,
before grouped-query attention. Their part of the backward pass, which sums over the groups again, counts, too.

## Why it costs time
Keys and values are written once per head of a group and read back by each head, although all copies are identical, and
as many gradients are written and summed. The attention kernels of PyTorch 2.5 and later accept shared heads directly.

## How to fix it
`scaled_dot_product_attention(q, k, v, enable_gqa=True)` with `k` and `v` as the projection returned them.

## When to leave it
GPUs on which PyTorch then falls back to unfused attention: only its flash and cuDNN kernels support shared heads.
`torch.backends.cuda.can_use_flash_attention(params, debug=True)` reports whether they apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import Example, Finding, Fix, Lines, Price, backward_of, constant

from ..shared._examples import op, two_steps
from ..shared._repeated_heads import repeated_heads
from ..shared._words import often
from ._equivalent import Equivalent, worth

CONFIRMED = "measured pair on a CPU: a language model with grouped-query attention; attention alone in ten shapes"

# What attention with shared heads saves with the copies before it and the backward pass.
_SAVED = constant("share.shared_heads").range

_ON_DEVICE = "low: half of the copies, as gradients are still summed; high: all of them and their backward pass"
_HOW = "the share that enable_gqa=True saved of copies and attention in measurements on a CPU"
_FIX = Fix(
    "Pass `enable_gqa=True` instead of repeating heads (PyTorch 2.5 and later)",
    "numerics",
    "k = k.repeat_interleave(groups, dim=1)\nv = v.repeat_interleave(groups, dim=1)\n"
    "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one argument, and two lines less; below 2 % noise between steps hides it
) -> Iterator[Finding]:
    events = price.ops.events
    rows, users, group = repeated_heads(price.ops)
    if not len(rows):
        return
    copied = np.concatenate((rows, backward_of(events, rows)))
    attention = np.concatenate((copied, users, backward_of(events, users)))
    one = Equivalent(
        parts=((copied, 0.5, 1.0),) if price.on_device else ((attention, *_SAVED),),
        how=_ON_DEVICE if price.on_device else _HOW,
        claims=("forward", "backward"),
        ops="replayed",
        spent_us=price.spent_us(copied),
        shown=rows,
    )
    if known := worth(price, lines, one, min_share):
        calls = len(rows) / price.ops.steps.count
        yield known.finding(
            f"Keys or values are copied {often(calls)}{known.at} to repeat each for {group} heads: {known.spent}.",
            {"copies": calls, "heads_in_group": group, "copies_us": known.spent_us},
            _FIX,
        )


_LAYERS = "[F  ][R    ][R    ][A  ][B      ]", "     [C   ] [C   ]"
_OPS: dict[str, Any] = {
    "R": op("repeat_interleave", [8, 2, 256, 64]),
    "C": op("clone", [8, 2, 4, 256, 64]),
    "A": op("scaled_dot_product_attention", *[[8, 8, 256, 64]] * 3),
}
_WINDOWS = [8, 4, 8, 256, 64]
_ON_GPU = two_steps(*_LAYERS, gpu=" [K ] [E     ][E     ][K   ][K  ]", **_OPS)
_AS_THEY_ARE = op("scaled_dot_product_attention", [8, 8, 256, 64], *[[8, 2, 256, 64]] * 2)

EXAMPLES = [
    Example(
        "keys and values repeated for groups of four heads",
        two_steps(*_LAYERS, **_OPS),
        saves_us=(200, 800),
        says=("for 4 heads", "2 times a step"),
    ),
    Example("the same on a GPU", _ON_GPU, saves_us=(0, 1700), says=("for 4 heads",)),
    Example(
        "a copy of five axes that is no group of heads: windows of pictures",
        two_steps(*_LAYERS, **(_OPS | {"R": op("reshape", _WINDOWS), "C": op("clone", _WINDOWS)})),
        near_miss=True,
    ),
    Example("shared heads as they are", two_steps("[F   ][A     ][B]", A=_AS_THEY_ARE)),
]
