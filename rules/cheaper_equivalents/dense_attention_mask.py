"""Attention gets a tokens-by-tokens mask as a tensor.

## What it looks at
Calls of `scaled_dot_product_attention` with a mask of `[tokens, tokens]` that is the same for all sequences and heads,
and the time of these calls and of their backward pass: on a GPU from 512 tokens on, on a CPU from 1,024 on if capture
saw the contents of the mask. It reads masks that modules hold, after the step in which it records lines. A bare trace
shows only that a mask has the shape of a causal one. On a GPU also masks that each sequence has for itself, from 2,048
tokens on and where attention is a fifth of the step; what these remove is not known, and there is no number.

## Why it costs time
The fastest kernels accept no mask tensor, only the flag `is_causal`. With a tensor PyTorch chooses another kernel, or
first converts the mask to another dtype, computes the scores that the mask then removes, half of them for a causal
mask, and reads the mask for each head.

## How to fix it
`is_causal=True` instead of the mask. For other patterns (windows, several documents in one sequence)
`torch.nn.attention.flex_attention` compiles a kernel that skips what the mask removes.

## When to leave it
Masks of numbers that are added to the scores. On a CPU the kernel skips blocks of 512 tokens: below 1,024 tokens the
flag gained little or nothing in measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    SYNC,
    Device,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Missing,
    Price,
    RankRecord,
    backward_of,
    constant,
    dims_of,
    sizes,
    with_backward,
)

from ..shared._examples import node, op, two_steps
from ..shared._words import often
from ._equivalent import Equivalent, worth
from ._masks import FLASH_ON_CPU, is_causal, kept_on_cpu, masked, on_cpu

CONFIRMED = "measured pair on a CPU: a causal mask of 1,024 tokens as a tensor against is_causal=True"

# Shorter sequences have few scores to leave out.
_TOKENS, _TOKENS_ON_CPU = 512, 1024
# Most of attention that a causal mask as a flag saves on a device.
_SAVED = constant("device.mask_share").range[1]

# Other masks than causal ones are worth another kernel in long sequences, where attention is much of the step.
_TOKENS_OF_EACH, _SHARE_OF_EACH = 2048, 0.2
_SKIPS = Fix(
    "Use `flex_attention` with a block mask, or the variable-length kernel (`flash_attn_varlen_func`)",
    "numerics",
    "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    "def kept(b, h, q, k):  # documents that are packed: document[b] numbers those of each token\n"
    "    return (q >= k) & (document[b, q] == document[b, k])\n\n"
    "blocks = create_block_mask(kept, batch, None, tokens, tokens)  # once for a batch\n"
    "y = flex_attention(q, k, v, block_mask=blocks)  # torch.nn.attention.flex_attention, compiled",
)
_FIX = Fix(
    "Pass `is_causal=True` instead of a mask",
    "numerics",
    "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
)
# What a bare trace shows of a mask is its shape: one that pads, or of several documents, has the same.
_UNKNOWN = Fix(
    "Pass `is_causal=True` only if the mask is causal, else use `flex_attention`",
    "numerics",
    "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    "kept = create_block_mask(lambda b, h, q, k: mask[q, k], None, None, tokens, tokens)  # once for a mask\n"
    "y = flex_attention(q, k, v, block_mask=kept)  # torch.nn.attention.flex_attention, compiled",
)


def check(
    price: Price,
    lines: Lines | None,
    device: Device,
    record: RankRecord | None,
    *,
    min_share: float = 0.03,  # of the step: one argument, but one has to know what the mask contains
) -> Iterator[Finding]:
    ops, events, masks = price.ops, price.ops.events, record.masks if record else []
    if not device.measured and (price.on_device or not masks):
        raise Missing(device.why)
    if (events.dims < 0).all():
        raise Missing("the trace has no shapes; record with record_shapes=True, or capture with `advisor run`")
    rows = masked(events, ops.links, _TOKENS if price.on_device else _TOKENS_ON_CPU)
    if not len(rows):
        if price.on_device:
            yield from _of_each_sequence(price, lines)
        return
    tokens = sizes(dims_of(events, int(rows[0])), 0)[-2]
    known = is_causal(masks, tokens, ops, rows)
    if price.on_device:
        how = "high: half of the scores are skipped, as a causal mask removes them; low: nothing, for any other mask"
        both = np.concatenate((rows, backward_of(events, rows)))
        one = Equivalent(parts=((both, 0.0, _SAVED),), how=how, ops="replayed", shown=rows)
    elif known:
        rows = rows[events.dims[rows] == events.dims[rows[0]]]
        one = on_cpu(ops, rows, kept_on_cpu(tokens))
    else:
        return
    if found := worth(price, lines, one, min_share):
        calls = len(rows) / ops.steps.count
        yield found.finding(
            f"Attention gets a mask of {tokens:,} x {tokens:,} as a tensor {often(calls)}{found.at}, and takes "
            f"{found.spent}; {_CAUSAL if known else _ANY}.",
            {"calls": calls, "tokens": tokens, "attention_us": found.spent_us, "causal": known or None},
            _FIX if known else _UNKNOWN,
        )


def _of_each_sequence(price: Price, lines: Lines | None) -> Iterator[Finding]:
    """Masks that differ from sequence to sequence: of texts that were padded, or packed one behind the other.

    How much they remove only their contents tell, so that there is no number.
    """
    ops, events = price.ops, price.ops.events
    rows = masked(events, ops.links, _TOKENS_OF_EACH, each=True)
    if not len(rows):
        return
    one = Equivalent(
        parts=((with_backward(events, rows), 0.0, 1.0),), how="", instead_us=None, shown=rows, at_most="low"
    )
    if found := worth(price, lines, one, _SHARE_OF_EACH):
        calls, (sequences, *_, tokens) = len(rows) / ops.steps.count, sizes(dims_of(events, int(rows[0])), 3)
        yield found.finding(
            f"Attention gets a mask of {tokens:,} x {tokens:,} for each of {sequences:,} sequences {often(calls)}"
            f"{found.at}, and takes {found.spent}: what such masks remove, other documents or padding, is computed all "
            "the same, in a slower kernel.",
            {
                "calls": calls,
                "tokens": tokens,
                "attention_us": found.spent_us,
                "saving": "not estimated: it depends on how much the masks remove",
            },
            _SKIPS,
        )


_CAUSAL = "the mask is causal, so `is_causal=True` can replace it"
_ANY = (
    "if the mask is causal, `is_causal=True` can replace it; for others, `flex_attention` leaves out blocks that they "
    "remove"
)


def _on_a_gpu(*mask: int) -> Drawing:
    """A step of attention (A) with this mask, whose kernel (M) takes most of it."""
    matrix = [8, 12, mask[-1] if mask else 1024, 64]
    return two_steps(
        "[F][A  ][B][S               ]",
        "   [I ]",
        gpu="[K ][M           ][K       ]",
        A=op("scaled_dot_product_attention", matrix, matrix, matrix, list(mask), launches=""),
        I=op("_scaled_dot_product_efficient_attention", matrix, matrix, matrix),
        S=SYNC,
        M=Ev("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "kernel"),
    )


def _on_a_cpu(tokens: int = 1024, before: str = "linear") -> Drawing:
    """A step that spends 1,000 µs in attention, 300 of them on its mask, and 800 in its backward pass."""
    matrix, mask = [8, 12, tokens, 64], [tokens, tokens]
    types: dict[str, Any] = {"Input type": ["float", "float", "float", "bool", "Scalar", "Scalar", "", "Scalar"]}
    return two_steps(
        "[F][A        ][N     ]",
        "   [C][I    ]",
        F=op(before, mask, mask),
        A=op("scaled_dot_product_attention", matrix, matrix, matrix, mask, **types),
        C="aten::masked_fill_",
        I=op(FLASH_ON_CPU.removeprefix("aten::"), matrix, matrix, matrix, number=3),
        N=node(3, "AttentionBackward"),
    )


def _held(form: str, *others: str, tokens: int = 1024) -> dict[str, Any]:
    """Masks that modules held."""
    return {"masks": [{"tokens": tokens, "form": one} for one in (form, *others)]}


EXAMPLES = [
    Example(
        "a mask of all pairs of 1,024 tokens",
        _on_a_gpu(1024, 1024),
        saves_us=(0, 750),
        says=("1,024 x 1,024", "if the mask is causal"),
    ),
    Example("a mask for each sequence: padding, which no flag says", _on_a_gpu(8, 1, 1024, 1024), None, near_miss=True),
    Example(
        "a mask for each of eight long sequences, as for documents that are packed",
        _on_a_gpu(8, 1, 4096, 4096),
        saves_us="unknown",
        says=("a mask of 4,096 x 4,096 for each of 8 sequences",),
        fixes=("flex_attention",),
    ),
    Example("a bias for each head", _on_a_gpu(1, 12, 1024, 1024), None, near_miss=True),
    Example("no mask", _on_a_gpu(), None),
    Example(
        "without a GPU, a mask of flags that was seen to be causal: a quarter of the scores goes, and their conversion",
        _on_a_cpu(),
        saves_us=(600, 1000),
        facts=_held("seen"),
        says=("1,024 x 1,024", "the mask is causal, so"),
    ),
    Example(
        "without a GPU, a mask of which nothing is known",
        _on_a_cpu(),
        None,
        {"masks": []},
        near_miss=True,
        skipped="no device work",
    ),
    Example(
        "without a GPU, a causal mask beside one of a sliding window, either of which may be the one",
        _on_a_cpu(),
        facts=_held("seen", "other"),
        near_miss=True,
    ),
    Example(
        "without a GPU, a causal mask that a second one is added to before attention gets it",
        _on_a_cpu(before="logical_and"),
        facts=_held("seen"),
        near_miss=True,
    ),
    Example(
        "without a GPU, flags for what is hidden where attention takes flags for what is seen",
        _on_a_cpu(),
        facts=_held("hidden"),
        near_miss=True,
    ),
    Example(
        "without a GPU, a causal mask of 512 tokens: the kernel leaves nothing out",
        _on_a_cpu(512),
        facts=_held("seen", tokens=512),
        near_miss=True,
    ),
]
