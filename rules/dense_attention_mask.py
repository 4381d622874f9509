"""A mask for all pairs of tokens is given to attention as a tensor.

## What it looks at
Calls of `scaled_dot_product_attention` on a GPU with a mask of `[tokens, tokens]` that is the same for all sequences
and heads, from 512 tokens on, and the device time of these calls and of their backward pass. A causal mask has this
shape; what really stands in a mask no trace tells.

## Why it costs time
The fastest kernels take no mask but a flag. With a tensor PyTorch chooses another kernel, which computes the scores
that the mask then removes, half of them for a causal mask, and reads the mask for each head.

## How to fix it
`is_causal=True` instead of the mask. For other patterns (windows, documents of one sequence)
`torch.nn.attention.flex_attention` compiles a kernel that leaves out what the mask removes.

## When to leave it
Masks that hold numbers to be added to the scores. On a CPU the flag gained nothing in four of six shapes when measured.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from advisor.api import (
    BACKWARD,
    FORWARD,
    SYNC,
    Breakdown,
    Category,
    Device,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Links,
    Missing,
    Nesting,
    Replay,
    Scale,
    Steps,
    Trace,
    draw,
    edits,
    replayed_or,
)

from ._costs import launched_us
from ._operands import backward_of, dims_of, sizes
from ._places import often, place
from ._words import percent, time

Ints = npt.NDArray[np.int64]
_ATTENTION = "aten::scaled_dot_product_attention"
# Shorter sequences have few scores to leave out.
_TOKENS = 512
# A causal mask removes half of the scores; nothing is gained where the kernel is limited by something else.
_SAVED = (0.0, 0.5)


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    device: Device,
    nesting: Nesting,
    links: Links,
    replay: Replay | None,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # of the step: one argument, but only for who knows what the mask holds
) -> Iterator[Finding]:
    if not device.measured:
        raise Missing(device.why)
    events = trace.events
    if (events.dims < 0).all():
        raise Missing("the trace holds no shapes; record with record_shapes=True, or capture with `advisor run`")
    rows = _masked(events, links)
    if not len(rows):
        return
    both = np.concatenate((rows, backward_of(events, rows)))
    bound_us = breakdown.us("compute")
    spent_us = launched_us(trace, steps, nesting, links, both)
    how = "high: half of the scores are left out, as a causal mask removes them; low: nothing, for another mask"
    least, most = (min(spent_us * share, bound_us) for share in _SAVED)
    saving = replayed_or(
        scale.saving(least, most, how),
        replay,
        [],
        [edits.scale(_kernels(trace, nesting, links, both), 1 - _SAVED[1])],
        how,
        scale.scaled(bound_us),
    )
    if saving.high_us < min_share * scale.step_us:
        return
    tokens = sizes(dims_of(events, int(rows[0])), 0)[-2]
    where = lines.where_op(int(rows[0])) if lines else None
    yield Finding(
        message=(
            f"Attention gets a mask of {tokens:,} x {tokens:,} as a tensor {often(len(rows) / steps.count)}"
            f"{place(where)}, and takes {time(scale.scaled(spent_us))} of each step "
            f"({percent(spent_us / steps.step_us)}); if it is causal, a flag says the same."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"calls": len(rows) / steps.count, "tokens": tokens, "attention_us": spent_us},
        fix=Fix(
            "Say that attention is causal instead of giving a mask",
            "numerics",
            "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
            "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        ),
        claims=("compute",),
        at_most="medium",  # what the mask holds is not known
    )


def _masked(events: Events, links: Links) -> Ints:
    """Calls of attention whose mask is one matrix of tokens by tokens for all sequences and heads."""
    inside = events.of(Category.CPU_OP) & (links.step >= 0) & (events.dims >= 0)
    rows = np.flatnonzero(inside & events.exactly(_ATTENTION))
    known: dict[int, bool] = {}
    for row in rows.tolist():
        kind = int(events.dims[row])
        if kind not in known:
            dims = dims_of(events, row)
            known[kind] = _is_one_matrix(sizes(dims, 0), sizes(dims, 1), sizes(dims, 3))
    return np.array([row for row in rows.tolist() if known[int(events.dims[row])]], np.int64)


def _is_one_matrix(query: tuple[int, ...], key: tuple[int, ...], mask: tuple[int, ...]) -> bool:
    if len(query) < 3 or len(key) < 3 or len(mask) < 2:
        return False
    square = mask[-2:] == (query[-2], key[-2]) and query[-2] == key[-2] >= _TOKENS
    return square and all(size == 1 for size in mask[:-2])


def _kernels(trace: Trace, nesting: Nesting, links: Links, rows: Ints) -> Ints:
    """What these host rows, and rows inside them, launched."""
    chosen = np.zeros(len(trace.events), bool)
    chosen[rows] = True
    inside = nesting.ancestor(chosen) >= 0
    launched = trace.device_work & (links.launch >= 0) & (links.step >= 0)
    found: Ints = np.flatnonzero(launched & inside[np.maximum(links.launch, 0)])
    return found


_SHAPE = [8, 12, 1024, 64]


def _attention(*mask: int) -> Ev:
    return Ev(_ATTENTION, dims=[_SHAPE, _SHAPE, _SHAPE, list(mask), [], [], [], []], launches="")


_INNER = Ev("aten::_scaled_dot_product_efficient_attention", dims=[_SHAPE] * 3)
_KERNEL = Ev("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "kernel")
_STEPS = """
    step   [1                           ][2                           ]
    cpu    [F][A  ][B][S               ] [F][A  ][B][S               ]
    cpu       [I ]                          [I ]
    gpu 7   [L ][K           ][M       ]  [L ][K           ][M       ]
    """


def _drawn(attention: Ev) -> dict[str, object]:
    other = Ev("ampere_bf16_s16816gemm_bf16_128x64_tn", "kernel")
    return draw(_STEPS, us=100, A=attention, I=_INNER, F=FORWARD, B=BACKWARD, S=SYNC, K=_KERNEL, L=other, M=other)


EXAMPLES = [
    Example(
        "a mask of all pairs of 1,024 tokens",
        _drawn(_attention(1024, 1024)),
        saves_us=(0, 750),
        says=("1,024 x 1,024", "if it is causal"),
    ),
    Example(
        "a mask for each sequence: padding, which no flag says",
        _drawn(_attention(8, 1, 1024, 1024)),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "a bias for each head",
        _drawn(_attention(1, 12, 1024, 1024)),
        saves_us=None,
        near_miss=True,
    ),
    Example("no mask", _drawn(_attention()), saves_us=None),
]
