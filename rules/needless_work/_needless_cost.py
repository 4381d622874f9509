"""What a step saves without gradients that no optimizer applies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from advisor.api import (
    NO_GRAD_SAVES,
    Price,
    Saving,
    constant,
    edits,
)

from ._needless_nodes import Needless, forward_of

Ints = npt.NDArray[np.int64]

# Part of a convolution's backward pass that is one of its two gradients.
_HALF = constant("share.convolution_gradient").range


def saving_of(
    price: Price,
    rows: Needless,
) -> tuple[Saving, float, tuple[str, ...]]:
    """(what goes, µs per step of the rows that surely go, parts of the breakdown) without these gradients."""
    claims = price.claims("forward", "backward")
    low_half, high_half = _HALF
    sure_us = price.spent_us(rows.sure) + low_half * price.spent_us(rows.halves)
    less = [edits.scale(rows.halves, 1 - high_half)] if len(rows.halves) else []
    least = [edits.scale(rows.halves, 1 - low_half)] if len(rows.halves) else []
    if not price.on_device:
        # Without a graph the forward pass of the frozen part gains what no_grad gains.
        forward = forward_of(price.ops.trace, price.ops.nesting, price.ops.links, rows.nodes)
        less.append(edits.scale(forward, 1 - NO_GRAD_SAVES))
    how = (
        "low: the ops of the backward pass that only lead to unused gradients; high: plus ops that may be unneeded, "
        "the forward pass of that part without a graph, and on a CPU what these gradients evict from the caches"
    )
    gone, all_gone = [edits.remove(rows.sure), *least], [edits.remove(rows.possible), *less]
    saving = price.saving(gone, all_gone, claims, how)
    if not price.on_device:
        # The unread gradients lie in memory beside the model and push it out of the caches in each backward pass. To
        # fetch it again takes no longer than what pushed it out.
        more = price.refilled(saving, rows.unread_bytes, most_us=price.scale.scaled(sure_us))
        bound_us = max(saving.high_us, price.scale.scaled(price.measured_us(claims)))
        saving = replace(more, high_us=min(more.high_us, bound_us))
    return saving, sure_us, claims
