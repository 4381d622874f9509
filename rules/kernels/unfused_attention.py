"""Attention is computed op by op instead of by a fused kernel.

## What it looks at
A batched matrix multiplication, a softmax within the next few ops, and a second batched matrix multiplication after it,
outside of `scaled_dot_product_attention`: attention written by hand, the unfused implementation that PyTorch falls
back to, or `nn.MultiheadAttention` with `need_weights=True`, its default, which also takes the mean of the weights over
all heads. A mean that the backward pass goes through is used: then nothing is reported.

## Why it costs time
The matrix of scores has a number for each pair of tokens. Written, scaled, masked, normalized and read back, it
goes through memory six times or more in each direction. Fused kernels keep a tile of it in fast memory and never
write it, so that their products take what their arithmetic takes.

## How to fix it
`torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)` instead of matmul, mask,
softmax and matmul; in a boolean mask True takes part, and without `scale` it is one over the root of the head's width.
In Hugging Face models `attn_implementation="sdpa"`; `nn.MultiheadAttention` with `need_weights=False`. Where the mask
hides later tokens and nothing else, `is_causal=True` instead of the tensor allows the fastest kernel. Dropout:
`dropout_p` applies whether or not the module trains, so pass 0.0 in evaluation. Fused kernels for GPUs have dropout,
that for CPUs has none: set `dropout=0.0` there, or it falls back to the same ops.

Scores of positions that are gathered between the two products, as in DeBERTa, stay as they are: give them as a float
`attn_mask`, which the kernel adds. It has to read them and to write their gradient, so that less is gained.

## When to leave it
Code that needs the attention weights themselves. Very short sequences, where the scores are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    KernelWork,
    Lines,
    Nesting,
    Price,
    Settings,
    StepOps,
    Trace,
    draw,
)

from ..shared._places import set_at
from ..shared._words import each_step, often
from ._around_products import NO_WEIGHTS, OF_THE_MODULE, head_means, means_are_used, of_the_module, products_kept
from ._attention_cost import Around, Cost, cost_of, fused
from ._attention_words import in_transformers
from ._attentions import attentions, lines_of_pattern

CONFIRMED = "real trace: TimeSformer with attention op by op on an H100; measured pairs on a CPU"


def check(
    recorded: StepOps,
    price: Price,
    work: KernelWork | None,
    lines: Lines | None,
    settings: Settings | None,
    *,
    min_share: float = 0.03,  # one call instead of four, and rounding changes: below 3 % of the step noise hides it
) -> Iterator[Finding]:
    found = attentions(recorded.trace, recorded.nesting, recorded.links)
    means = head_means(recorded, found)
    if not found or means_are_used(recorded, means):
        return
    gathers = price.ops.nesting.outer_op[np.flatnonzero(price.ops.events.exactly("aten::gather"))]
    # Scores of positions are gathered and added: a fused kernel takes them as its mask, and they are made as before.
    if placed := bool(np.isin(np.concatenate(found), gathers).any()):
        found = [rows[~np.isin(rows, gathers)] for rows in found]
    cost = cost_of(recorded, found, price.on_device)
    claims = price.claims("forward", "backward", "other_ops")
    fusing = [rows[~np.isin(rows, _masking(price))] for rows in found] if placed else found
    goes = cost_of(recorded, fusing, price.on_device) if placed else cost
    saving = fused(goes, price, claims, fusing, Around(products_kept(price, work, found), means))
    saving = replace(saving, low_us=0.0, how=_HOW_PLACED) if placed else saving
    if saving.high_us < min_share * price.scale.step_us:
        return
    capped = _has(recorded.trace, recorded.nesting, found, ("aten::tanh",))
    if capped and not price.on_device:
        return  # FlexAttention, which alone caps scores, has no backward pass for CPUs
    # A dropout of probability 0 is recorded as well: it draws nothing.
    drops = _has(recorded.trace, recorded.nesting, found, ("aten::native_dropout", "aten::bernoulli_"))
    # Fused kernels for GPUs drop weights out as well; the one for CPUs does not.
    dropping = drops and not price.on_device
    scale_and_dropout = f"scale=scale{', dropout_p=p if self.training else 0.0' if drops and not dropping else ''}"
    number = len(found) / price.ops.steps.count
    where = lines_of_pattern(lines, found[0])
    fix = _by_hand(scale_and_dropout, dropping=dropping)
    if not dropping and of_the_module(recorded, found, means):
        fix = NO_WEIGHTS
    own = _CAPPED if capped else _PLACED if placed else in_transformers(settings, fix, no_dropout=dropping)
    made = (*set_at(settings, "attn_implementation"), *set_at(settings, "model")) if own is not fix else ()
    yield Finding(
        message=_message(price, number, cost) + _mean(price, means),
        saving=saving,
        where=(*made, *where),
        facts={
            "attentions": number,
            "forward_us": cost.forward_us,
            "backward_us": cost.backward_us,
            "between_us": cost.between_us + cost.softmax_us,
        },
        fix=own,
        claims=claims,
        at_most="medium" if dropping else "high",  # dropout of attention weights may be wanted
    )


def _masking(price: Price) -> Ints:
    """Ops that fill what a mask hides: where a fused kernel is given scores as its mask, they fill these."""
    return price.ops.nesting.outer_op[np.flatnonzero(price.ops.events.exactly("aten::masked_fill", "aten::where"))]


def _message(price: Price, number: float, cost: Cost) -> str:
    return (
        f"Attention runs op by op {often(number)}: matrix multiplications, mask and softmax take "
        f"{each_step(price, cost.forward_us)}{' in the forward pass alone' if cost.backward_us else ''}."
    )


def _mean(price: Price, means: Ints) -> str:
    """What the mean of the weights takes, which `nn.MultiheadAttention` returns."""
    return f" The mean of the weights over all heads takes {each_step(price, price.spent_us(means))}." * bool(
        len(means)
    )


def _by_hand(scale_and_dropout: str, *, dropping: bool) -> Fix:
    return Fix(
        f"Use `scaled_dot_product_attention`{', on a CPU without dropout' if dropping else ''}",
        "semantics" if dropping else "numerics",
        "scores = (q @ k.transpose(-2, -1)) * scale\nscores = scores.masked_fill(mask == 0, float('-inf'))\n"
        "y = scores.softmax(-1) @ v",
        f"y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.bool(), {scale_and_dropout})\n"
        "# a mask that hides later tokens alone: is_causal=True instead of attn_mask allows the fastest kernel\n"
        f"# nn.MultiheadAttention: {'dropout=0.0, and ' if dropping else ''}attention(x, x, x, need_weights=False)",
    )


# scaled_dot_product_attention caps no scores; see torch.nn.attention.flex_attention, and `softcap` of flash-attn.
_CAPPED = Fix(
    "Use FlexAttention with the cap as `score_mod`, or FlashAttention with `softcap`",
    "numerics",
    "scores = cap * torch.tanh(q @ k.transpose(-2, -1) * scale / cap)\ny = (scores + mask).softmax(-1) @ v",
    "def capped(score, batch, head, q_at, k_at):\n    return cap * torch.tanh(score / cap)\n\n"
    "flex_attention = torch.compile(torch.nn.attention.flex_attention.flex_attention)\n"
    "y = flex_attention(q, k, v, score_mod=capped, block_mask=mask, scale=scale)",
)


# torch.nn.functional.scaled_dot_product_attention, `attn_mask`: "A float mask of the same type as query, key, value
# that is added to the attention score". Kernels read it, and write its gradient: a number for each pair of tokens.
_PLACED = Fix(
    "Use `scaled_dot_product_attention` with the scores of positions as `attn_mask`",
    "numerics",
    "scores = q @ k.transpose(-2, -1) * scale + torch.gather(q @ places, -1, index) * scale\n"
    "y = scores.masked_fill(mask == 0, float('-inf')).softmax(-1) @ v",
    "bias = torch.gather(q @ places, -1, index) * scale\nbias = bias.masked_fill(mask == 0, float('-inf'))\n"
    "y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)",
)
_HOW_PLACED = (
    "low: nothing, where reading the mask and writing its gradient takes as long; high: all but what is gathered and "
    "filled"
)


def _has(trace: Trace, nesting: Nesting, found: Sequence[Ints], names: Sequence[str]) -> bool:
    """Whether one of these ops runs between softmax and either product, by itself or in another op."""
    events = trace.events
    between = np.zeros(len(events), np.bool_)
    between[np.concatenate([rows[1:-1] for rows in found])] = True
    asked = events.exactly(*names)
    return bool((nesting.ancestor(between)[asked] >= 0).any())


_SCORES = Ev("aten::bmm")
_BY_HAND = """
    step   [1                             ][2                             ]
    cpu    [Q ][M ][S ][V ][B             ][Q ][M ][S ][V ][B             ]
    """

EXAMPLES = [
    *OF_THE_MODULE,
    Example(
        "product, mask, softmax, product",
        draw(_BY_HAND, us=1000, Q=_SCORES, M="aten::masked_fill", S="aten::_softmax", V=_SCORES),
        saves_us=(5000, 8500),
        says=("once a step",),
    ),
    Example(
        "the same in a model of Transformers",
        draw(_BY_HAND, us=1000, Q=_SCORES, M="aten::masked_fill", S="aten::_softmax", V=_SCORES),
        facts={"settings": {"attention": {"implementation": "eager"}}},
        saves_us=(5000, 8500),
        fixes=('from_pretrained(name, attn_implementation="sdpa")',),
    ),
    Example(
        "with dropout of the weights on a GPU, whose fused kernels drop out, too",
        draw(
            """
            step   [1                                ][2                                ]
            cpu    [Q ][M ][S ][D ][V ][F ]            [Q ][M ][S ][D ][V ][F ]
            gpu 7   [K   ][E  ][E  ][E  ][K   ][K    ]  [K   ][E  ][E  ][E  ][K   ][K    ]
            """,
            us=1000,
            Q=_SCORES,
            M="aten::masked_fill",
            S="aten::_softmax",
            D="aten::native_dropout",
            V=_SCORES,
            E=Ev("softmax_warp_forward", "kernel"),
        ),
        saves_us=(6000, 15500),
        fixes=("dropout_p=p if self.training else 0.0", "attn_mask=mask.bool()"),
    ),
    Example(
        "scores of positions are gathered, as in DeBERTa: they are gathered as before, and given as a mask",
        draw(
            """
            step   [1                                ][2                                ]
            cpu    [Q ][G ][A ][S ][V ][F ]            [Q ][G ][A ][S ][V ][F ]
            gpu 7   [K   ][E  ][E  ][E  ][K   ][K    ]  [K   ][E  ][E  ][E  ][K   ][K    ]
            """,
            us=1000,
            Q=_SCORES,
            G="aten::gather",
            A="aten::add",
            S="aten::_softmax",
            V=_SCORES,
            E=Ev("softmax_warp_forward", "kernel"),
        ),
        # Three kernels of 4 ms: all but the gather at most.
        saves_us=(0, 8500),
        fixes=("attn_mask=bias",),
    ),
    Example(
        "product, mask, softmax, product on a GPU",
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
            E=Ev("softmax_warp_forward", "kernel"),
        ),
        # Two kernels of 4 ms: low, the mask and 0.3 of the softmax.
        saves_us=(5100, 8100),
    ),
    Example(
        "scores that a tanh limits, which scaled_dot_product_attention does not",
        draw(
            """
            step   [1                                ][2                                ]
            cpu    [Q ][T ][M ][S ][V ][F ]            [Q ][T ][M ][S ][V ][F ]
            gpu 7   [K   ][E  ][E  ][E  ][K   ][K    ]  [K   ][E  ][E  ][E  ][K   ][K    ]
            """,
            us=1000,
            Q=_SCORES,
            T="aten::tanh",
            M="aten::add",
            S="aten::_softmax",
            V=_SCORES,
            E=Ev("softmax_warp_forward", "kernel"),
        ),
        saves_us=(6000, 15500),
        fixes=("FlexAttention", "softcap"),
    ),
    Example(
        "a gate's softmax between the products of two layers of experts",
        draw(
            _BY_HAND,
            us=1000,
            Q=Ev("aten::bmm", dims=[[24, 64, 32], [24, 32, 32]]),
            M="aten::mul",
            S=Ev("aten::_softmax", dims=[[64, 24]]),
            V=Ev("aten::bmm", dims=[[24, 64, 32], [24, 32, 32]]),
        ),
        near_miss=True,
    ),
    Example(
        "a classifier's softmax, with no product near it",
        draw(
            "step [1              ][2              ]\ncpu  [F   ][S ][B    ] [F   ][S ][B    ]",
            us=1000,
            S="aten::_softmax",
        ),
        near_miss=True,
    ),
    Example(
        "fused attention",
        draw(
            "step [1              ][2              ]\ncpu  [F   ][A     ][B] [F   ][A     ][B]",
            us=1000,
            A="aten::_scaled_dot_product_flash_attention_for_cpu",
        ),
    ),
]
