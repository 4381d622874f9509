"""What a mask of tokens by tokens is known to hold, and what attention takes on a CPU with the flag in its place."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Events, Ints, Links, Mask, StepOps, backward_of, constant, dims_of, dtypes_of, sizes

from ._equivalent import Equivalent

_ATTENTION = "aten::scaled_dot_product_attention"
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


def on_cpu(ops: StepOps, rows: Ints, kept: float) -> Equivalent:
    """What the flag gives back on a CPU of these calls and their backward pass. kept: share of the scores."""
    events, parent = ops.events, ops.nesting.parent
    ahead = np.flatnonzero(events.exactly(FLASH_ON_CPU) & np.isin(parent, rows))
    calls = parent[ahead]
    # Beside the kernel lies what turns a mask of flags into one of numbers: a call without a mask has none of it.
    beside = events.of(Category.CPU_OP) & np.isin(parent, calls)
    beside[ahead] = False
    fused = np.concatenate((ahead, backward_of(events, calls)))
    return Equivalent(
        parts=((np.flatnonzero(beside), 1.0, 1.0), (fused, 1 - kept, 1 - kept * _NO_MASK)),
        how="low: no fully masked blocks of scores, no conversion of the mask's dtype; high: plus no reads of the mask",
        claims=("forward", "backward"),
        ops="long",
        shown=rows,
    )


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


def masked(events: Events, links: Links, least: int, *, each: bool = False) -> Ints:
    """Calls of attention on so many tokens whose mask is one matrix for all heads, of all sequences or of each one."""
    inside = events.of(Category.CPU_OP) & links.inside & (events.dims >= 0)
    rows = np.flatnonzero(inside & events.exactly(_ATTENTION))
    known: dict[int, bool] = {}
    for row in rows.tolist():
        kind = int(events.dims[row])
        if kind not in known:
            dims = dims_of(events, row)
            known[kind] = _is_matrix(sizes(dims, 0), sizes(dims, 1), sizes(dims, 3), least, each=each)
    return np.array([row for row in rows.tolist() if known[int(events.dims[row])]], np.int64)


def _is_matrix(query: tuple[int, ...], key: tuple[int, ...], mask: tuple[int, ...], least: int, *, each: bool) -> bool:
    if len(query) < 3 or len(key) < 3 or len(mask) < 2:
        return False
    square = mask[-2:] == (query[-2], key[-2]) and query[-2] == key[-2] >= least
    if each:
        return square and len(query) == len(mask) == 4 and 1 < mask[0] == query[0] and mask[1] == 1
    return square and all(size == 1 for size in mask[:-2])
