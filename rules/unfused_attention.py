"""Attention is computed piece by piece.

## What it looks at
A batched matrix product, a softmax within the next few ops, and a second batched matrix product after it, outside
of `scaled_dot_product_attention`: attention written by hand, or the plain form that PyTorch falls back to.

## Why it costs time
The matrix of scores has a number for each pair of tokens. Written out, scaled, masked, normalised and read back, it
crosses the memory six times or more in each direction. Fused kernels keep a tile of it in fast memory and never
write it.

## How to fix it
`torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)` instead of matmul, mask, softmax and
matmul. In Hugging Face models `attn_implementation="sdpa"`. A causal mask as `is_causal=True`, not as a tensor:
that keeps the fastest kernel possible.

## When to leave it
Code that needs the attention weights themselves. Very short sequences, where the scores are few.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    Breakdown,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Links,
    Nesting,
    Scale,
    Steps,
    Trace,
    draw,
)

from ._words import count, percent, time

CONFIRMED = "real trace: TimeSformer with attention op by op on an H100; measured pairs on a CPU"

# From product to softmax and from softmax to product: scale, mask, dropout and copies, each with its inner ops.
_NEAR = 12
_PRODUCTS = ("aten::bmm", "aten::baddbmm")
_SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
# With the backward pass, which has about twice the work, fusing saved 63 to 86 % of hand-written attention on a CPU
# (16 to 64 heads times batch, 256 to 1,024 tokens).
_MOST_SAVED = 0.86


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    nesting: Nesting,
    links: Links,
    *,
    min_share: float = 0.03,  # one call instead of four, and rounding changes: below 3 % of the step noise hides it
) -> Iterator[Finding]:
    found = _attentions(trace, nesting, links)
    if not found:
        return
    cost = _cost_ns(trace, nesting, links, breakdown.on_device)
    between_us = steps.per_step_us(float(sum(cost[rows[1:-1]].sum() for rows in found)))
    forward_us = steps.per_step_us(float(sum(cost[rows].sum() for rows in found)))
    trained = bool(trace.events.named("SoftmaxBackward").any())
    claims = ("compute",) if breakdown.on_device else ("forward", "backward", "other_ops")
    bound_us = sum(breakdown.us(part) for part in claims)
    high_us = min(forward_us * (3 if trained else 1) * _MOST_SAVED, bound_us)
    if high_us < min_share * steps.step_us:
        return
    number = len(found) / steps.count
    often = "once" if number == 1 else f"{count(number)} times"
    yield Finding(
        message=(
            f"Attention runs op by op {often} a step: products, mask and softmax of the scores take "
            f"{time(scale.scaled(forward_us))} of each step ({percent(forward_us / steps.step_us)})"
            f"{' in the forward pass alone' if trained else ''}."
        ),
        saving=scale.saving(
            min(between_us, high_us),
            high_us,
            "low: the ops between the two products; high: as much as fused attention saved in measurements on a CPU",
        ),
        facts={"attentions": number, "forward_us": forward_us, "between_us": between_us},
        fix=Fix(
            "Use the fused attention",
            "numerics",
            "scores = (q @ k.transpose(-2, -1)) * scale\nscores = scores.masked_fill(mask == 0, float('-inf'))\n"
            "y = scores.softmax(-1) @ v",
            "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # or attn_mask=mask",
        ),
        claims=claims,
    )


def _attentions(trace: Trace, nesting: Nesting, links: Links) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Rows of the innermost ops of each attention, from the first product to the second."""
    events = trace.events
    ops = events.of(Category.CPU_OP)
    holds = np.zeros(len(events), bool)
    above = nesting.parent[ops]
    holds[above[above >= 0]] = True
    backward = nesting.ancestor(events.named("autograd::engine::evaluate_function")) >= 0
    leaves = np.flatnonzero(ops & ~holds & (links.step >= 0) & ~backward)
    leaves = leaves[np.argsort(events.thread[leaves], kind="stable")]
    product = events.exactly(*_PRODUCTS)[leaves]
    found = []
    for at in np.flatnonzero(events.exactly(*_SOFTMAX)[leaves]).tolist():
        before = [i for i in range(max(at - _NEAR, 0), at) if product[i]]
        after = [i for i in range(at + 1, min(at + _NEAR + 1, len(leaves))) if product[i]]
        if before and after and events.thread[leaves[before[-1]]] == events.thread[leaves[after[0]]]:
            found.append(leaves[before[-1] : after[0] + 1])
    return found


def _cost_ns(
    trace: Trace, nesting: Nesting, links: Links, on_device: bool
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What each op costs: the device time of what it launches, or its own time on a CPU."""
    if not on_device:
        return nesting.self_ns
    events = trace.events
    work = np.flatnonzero(trace.device_work & (links.launch >= 0))
    inner = nesting.ancestor(events.of(Category.CPU_OP))[links.launch[work]]
    known = inner >= 0
    return np.bincount(inner[known], weights=events.dur_ns[work[known]], minlength=len(events)).astype(np.int64)


_SCORES = Ev("aten::bmm")
_BY_HAND = """
    step   [1                             ][2                             ]
    cpu    [Q ][M ][S ][V ][B             ][Q ][M ][S ][V ][B             ]
    """

EXAMPLES = [
    Example(
        "product, mask, softmax, product",
        draw(_BY_HAND, us=1000, Q=_SCORES, M="aten::masked_fill", S="aten::_softmax", V=_SCORES, B=BACKWARD),
        saves_us=(7000, 16000),
        says=("once a step",),
    ),
    Example(
        "the same on a GPU",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [Q ][M ][S ][V ][F ]            [Q ][M ][S ][V ][F ]
            gpu 7   [K   ][E  ][E  ][K   ][K     ]  [K   ][E  ][E  ][K   ][K     ]
            """,
            us=1000,
            Q=_SCORES,
            M="aten::masked_fill",
            S="aten::_softmax",
            V=_SCORES,
            F=FORWARD,
            K=GEMM,
            E=Ev("softmax_warp_forward", "kernel"),
        ),
        saves_us=(9000, 19000),
    ),
    Example(
        "a classifier's softmax, with no product near it",
        draw(
            "step [1              ][2              ]\ncpu  [F   ][S ][B    ] [F   ][S ][B    ]",
            us=1000,
            F=FORWARD,
            S="aten::_softmax",
            B=BACKWARD,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "fused attention",
        draw(
            "step [1              ][2              ]\ncpu  [F   ][A     ][B] [F   ][A     ][B]",
            us=1000,
            F=FORWARD,
            A="aten::_scaled_dot_product_flash_attention_for_cpu",
            B=BACKWARD,
        ),
        saves_us=None,
    ),
]
