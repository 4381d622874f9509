"""What a step saves without gradients that no optimizer applies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from advisor.api import (
    NO_GRAD_SAVES,
    Breakdown,
    Links,
    Nesting,
    Replay,
    Saving,
    Scale,
    Steps,
    Trace,
    Undilated,
    constant,
    edits,
    replayed_or,
    union,
)

from ..shared._costs import launched_us, refill_us, widened
from ._needless_nodes import Needless, forward_of

Ints = npt.NDArray[np.int64]

# Part of a convolution's backward pass that is one of its two gradients.
_HALF = constant("share.convolution_gradient").range


def saving_of(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    nesting: Nesting,
    links: Links,
    undilated: Undilated | None,
    replay: Replay | None,
    rows: Needless,
) -> tuple[Saving, float, tuple[str, ...]]:
    """(what goes, µs per step of the rows that surely go, parts of the breakdown) without these gradients."""
    claims: tuple[str, ...] = ("compute",) if breakdown.on_device else ("forward", "backward")
    bound_us = sum(breakdown.us(part) for part in claims)
    forward = forward_of(trace, nesting, links, rows.nodes)

    def spent(of: Ints) -> float:
        if breakdown.on_device:
            return launched_us(trace, steps, nesting, links, of)
        return steps.per_step_us(float(trace.events.dur_ns[of].sum()))

    low_half, high_half = _HALF
    sure_us, most_us = spent(rows.sure), spent(rows.possible)
    halves_us = spent(rows.halves)
    less = [edits.scale(rows.halves, 1 - high_half)] if len(rows.halves) else []
    least = [edits.scale(rows.halves, 1 - low_half)] if len(rows.halves) else []
    most_us += high_half * halves_us
    if not breakdown.on_device:
        # Without a graph the forward pass of the frozen part gains what no_grad gains.
        most_us += spent(forward) * NO_GRAD_SAVES
        less.append(edits.scale(forward, 1 - NO_GRAD_SAVES))
    sure_us += low_half * halves_us
    how = (
        "low: the ops of the backward pass that only lead to unused gradients; high: plus ops that may be unneeded, "
        "the forward pass of that part without a graph, and on a CPU what these gradients evict from the caches"
    )
    modelled = scale.saving(min(sure_us, bound_us), min(most_us, bound_us), how)
    gone, all_gone = [edits.remove(rows.sure), *least], [edits.remove(rows.possible), *less]
    saving = replayed_or(modelled, replay, gone, all_gone, how, scale.scaled(bound_us))
    if not breakdown.on_device:
        spans = union(trace.events.start_ns[rows.possible], trace.events.end_ns[rows.possible])
        bound_us = scale.scaled(bound_us)
        saving = widened(saving, trace, steps, scale, undilated, spans, bound_us)
        # The unread gradients lie in memory beside the model and push it out of the caches in each backward pass. To
        # fetch it again takes no longer than what pushed it out.
        more_us = min(refill_us(scale.step_us - saving.high_us, rows.unread_bytes), scale.scaled(sure_us))
        saving = replace(saving, high_us=max(saving.high_us, min(saving.high_us + more_us, bound_us)))
    return saving, sure_us, claims
