"""What a mask of tokens by tokens is known to hold, and what attention takes on a CPU with the flag in its place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import (
    Category,
    Mask,
    Price,
    Saving,
    StepOps,
    backward_of,
    constant,
    dims_of,
    dtypes_of,
    sizes,
)

Ints = npt.NDArray[np.int64]
FLASH_ON_CPU = "aten::_scaled_dot_product_flash_attention_for_cpu"
# The kernel of a CPU takes 256 rows at a time from 768 tokens on, and what they see in blocks of 512 tokens.
_ROWS, _BLOCK = 256, 512
# What is left of attention on a CPU without a mask to read, heads of 16 numbers.
_NO_MASK = constant("share.attention_without_mask").value
# Ops that make one mask of several.
_COMBINED = (
    *(f"aten::{kind}_{name}{end}" for kind in ("bitwise", "logical") for name in ("and", "or") for end in ("", "_")),
    *("aten::__and__", "aten::__or__", "aten::mul", "aten::mul_", "aten::add", "aten::add_", "aten::where"),
)


def on_cpu(
    recorded: StepOps,
    price: Price,
    rows: Ints,
    tokens: int,
) -> tuple[Saving, float]:
    """What the flag gives back on a CPU, and what these calls and their backward pass take, profiled µs per step."""
    events, nesting = recorded.events, recorded.nesting
    ahead = np.flatnonzero(events.exactly(FLASH_ON_CPU) & np.isin(nesting.parent, rows))
    calls = nesting.parent[ahead]
    # Beside the kernel lies what turns a mask of flags into one of numbers: a call without a mask has none of it.
    beside = events.of(Category.CPU_OP) & np.isin(nesting.parent, calls)
    beside[ahead] = False
    beside_us = recorded.us(np.flatnonzero(beside))
    fused = np.concatenate((ahead, backward_of(events, calls)))
    fused_us = recorded.us(fused)
    kept = kept_on_cpu(tokens)
    low_us, high_us = (beside_us + fused_us * (1 - left) for left in (kept, kept * _NO_MASK))
    how = "low: no fully masked blocks of scores, no conversion of the mask's dtype; high: plus no reads of the mask"
    saving = price.long_ops((low_us, high_us), ("forward", "backward"), how)
    return saving, fused_us + beside_us


def kept_on_cpu(tokens: int) -> float:
    """The share of the scores that the kernel of a CPU computes with the flag, from 768 tokens on."""
    first = np.arange(0, tokens, _ROWS)
    ends = np.minimum(first + _ROWS, tokens)
    seen = np.minimum(np.ceil(ends / _BLOCK) * _BLOCK, tokens)
    return float(((ends - first) * seen).sum() / tokens**2)


def is_causal(masks: list[Mask], tokens: int, recorded: StepOps, rows: Ints) -> bool:
    """Whether the mask of these calls is known to be causal: every mask is that was seen and that it may be a part of.

    What is made of several masks may never have been held by a module.
    """
    events = recorded.events
    forms = {one.form for one in masks if one.tokens >= tokens}
    types = {str(dtypes_of(events, row)[3:4]) for row in rows.tolist()}
    spelling = "seen" if types == {"['bool']"} else "added"
    if spelling not in forms or "other" in forms or len(types) != 1:
        return False
    combined = np.flatnonzero(events.exactly(*_COMBINED) & recorded.nesting.outermost)
    kinds, first = np.unique(events.dims[combined], return_index=True)
    shapes = (dims_of(events, int(row)) for row in combined[first[kinds >= 0]])
    return not any(sizes(dims, at)[-2:] == (tokens, tokens) for dims in shapes for at in range(len(dims)))
