"""scaled_dot_product_attention falls back to its unfused implementation.

## What it looks at
Calls of `scaled_dot_product_attention` that PyTorch ran op by op, whether they apply dropout to attention weights, and
whether `torch.backends.cuda.enable_flash_sdp(False)` was called. On a CPU either prevents the fused kernel: it has no
dropout, and asks the same switch as that of a GPU (torch 2.14).

## Why it costs time
The unfused implementation writes the matrix of scores, a number for each pair of tokens, to memory and reads it back
six times or more, and draws a random number for each of them. The fused kernel keeps a tile of it in fast memory.

## How to fix it
On a CPU: the switch left on, and no dropout inside attention (`dropout_p=0.0`; `layer.self_attn.dropout = 0.0` for
PyTorch's own layers, `attention_probs_dropout_prob=0.0` or `attention_dropout=0.0` in Hugging Face configurations).
Dropout after the projection and in the feed-forward part can stay. On a GPU dropout is no obstacle;
`torch.backends.cuda.can_use_flash_attention(params, debug=True)` reports what prevents the fused kernel.

## When to leave it
A training whose result depends on dropout of attention weights, and a model that must match a published one. Unless
it certainly saves a tenth of the step, dropout is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import Ev, Example, Finding, Fix, Lines, Price, Settings, StepOps, backward_of, draw

from ..shared._places import place, set_at
from ..shared._words import each_step, often
from ._attention_cost import cost_of_plain, fused
from ._attention_words import in_transformers

CONFIRMED = (
    "measured pairs on a CPU: attention of six shapes, with and without dropout; "
    "the switch of the fused kernel rests on one script"
)

_PLAIN = "aten::_scaled_dot_product_attention_math"
_DROPOUT = ("aten::dropout", "aten::native_dropout", "aten::bernoulli_")


def check(
    recorded: StepOps,
    price: Price,
    lines: Lines,
    settings: Settings | None,
    *,
    min_share: float = 0.03,  # a switch: below 3 % of the step the gain is within the noise between steps
    min_certain: float = 0.10,  # dropout is part of the training: to give it up needs a tenth of the step for certain
) -> Iterator[Finding]:
    events, nesting = recorded.events, recorded.nesting
    plain = events.exactly(_PLAIN)
    if not plain.any():
        return
    rows = np.flatnonzero(plain & recorded.links.inside)
    inside = nesting.ancestor(plain)
    dropping = np.unique(inside[events.exactly(*_DROPOUT) & (inside >= 0)])
    switched_off = not price.on_device and settings is not None and settings.flash_sdp is False
    if not price.on_device and not switched_off:
        rows = np.intersect1d(rows, dropping)  # other reasons are not told by a trace
    if not len(rows):
        return
    both = np.concatenate((rows, backward_of(events, rows)))
    spent_us, claims = price.spent_us(both), price.claims("forward", "backward")
    if spent_us < min_share * recorded.steps.step_us:
        return
    where = lines.where_op(int(rows[0]))
    cause = "the fused kernel is switched off" if switched_off else "of dropout on attention weights"
    why = "" if price.on_device else f" because {cause}"
    saving = None
    if not price.on_device:
        saving = fused(cost_of_plain(recorded, rows), price, claims)
        least_us = saving.high_us if switched_off else saving.low_us
        if least_us < (min_share if switched_off else min_certain) * price.scale.step_us:
            return
    dropped = in_transformers(settings, _NO_DROPOUT, no_dropout=True)
    made = set_at(settings, "model") if dropped is not _NO_DROPOUT else ()
    yield Finding(
        message=(
            f"Attention falls back to its unfused implementation {often(len(rows) / recorded.steps.count)}"
            f"{place(where)}{why}: {each_step(price, spent_us)}."
        ),
        saving=saving,
        where=(*(set_at(settings, "flash_sdp") if switched_off else made), *((where,) if where else ())),
        facts={"calls": len(rows) / recorded.steps.count, "attention_us": spent_us, "dropout": bool(len(dropping))},
        fix=None if price.on_device else _SWITCHED_ON if switched_off else dropped,
        claims=claims,
        at_most="medium",  # dropout of attention weights may be wanted
    )


_SWITCHED_ON = Fix(
    "Leave the fused kernel of attention on",
    "numerics",
    "torch.backends.cuda.enable_flash_sdp(False)",
    "torch.backends.cuda.enable_flash_sdp(True)  # the default, and what attention on a CPU asks as well",
)
_NO_DROPOUT = Fix(
    "Remove dropout inside attention",
    "semantics",
    "y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)",
    "y = F.scaled_dot_product_attention(q, k, v)",
)
_ATTENTION = Ev(_PLAIN, launches="")
_STEPS = """
    step   [1                             ][2                             ]
    cpu    [F  ][A           ][B         ]  [F  ][A           ][B         ]
    cpu          [P ][D ][P ]                     [P ][D ][P ]
    """

EXAMPLES = [
    Example(
        "attention with dropout on a CPU",
        draw(_STEPS, us=100, A=_ATTENTION, P="aten::bmm", D="aten::dropout"),
        saves_us=(350, 500),
        says=("dropout on attention weights",),
    ),
    Example(
        "the same in a model of Transformers, whose configuration has the dropout",
        draw(_STEPS, us=100, A=_ATTENTION, P="aten::bmm", D="aten::dropout"),
        facts={"settings": {"attention": {"implementation": "sdpa", "dropout": ["attention_dropout"]}}},
        saves_us=(350, 500),
        fixes=("from_pretrained(name, attention_dropout=0.0)",),
    ),
    Example(
        "the plain form beside a GPU, for reasons that no trace tells",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F  ][A           ][B         ]  [F  ][A           ][B         ]
            cpu          [P ][D ][P ]                     [P ][D ][P ]
            gpu 7   [K  ] [K ][K ][K ]                [K ][K ][K ][K ]
            """,
            us=100,
            A=_ATTENTION,
            P="aten::bmm",
            D="aten::_softmax",
        ),
        saves_us="unknown",
    ),
    Example(
        "the plain form on a CPU, where the fused one is switched off",
        draw(_STEPS, us=100, A=_ATTENTION, P="aten::bmm", D="aten::_softmax"),
        facts={"settings": {"flash_sdp": False}},
        saves_us=(110, 410),
        says=("switched off",),
    ),
    Example(
        "dropout in an attention that takes a small part of the step",
        draw(
            """
            step   [1                                                   ][2                                          ]
            cpu    [F                        ][A           ][B         ]  [F               ][A           ][B         ]
            cpu                                [P ][D ][P ]                                  [P ][D ][P ]
            """,
            us=100,
            A=_ATTENTION,
            P="aten::bmm",
            D="aten::dropout",
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "the plain form on a CPU without dropout",
        draw(_STEPS, us=100, A=_ATTENTION, P="aten::bmm", D="aten::_softmax"),
        near_miss=True,
    ),
    Example(
        "fused attention",
        draw(
            "step [1              ][2              ]\ncpu  [F   ][A     ][B] [F   ][A     ][B]",
            us=100,
            A="aten::_scaled_dot_product_flash_attention_for_cpu",
        ),
    ),
]
