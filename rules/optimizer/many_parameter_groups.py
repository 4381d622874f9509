"""Parameters are split into more optimizer groups than there are settings.

## What it looks at
Optimizers with far more groups of parameters than different settings (learning rate, weight decay and so on) among
them, such as one group for each parameter, and what their steps take. Needs a run of `advisor run`.

## Why it costs time
Each group is stepped by itself: its parameters, gradients and states are collected into lists in Python, then one fused
or foreach op runs on them. With one parameter in each group nothing is left of what these ops save. A learning rate
scheduler walks all groups as well.

## How to fix it
Put all parameters with the same settings into one group: a dict from the settings to a list of parameters, whose items
become the groups. Layer-wise learning rates need a group for each layer, not for each parameter.

## When to leave it
Code that changes the settings of single parameters later, by their group. The state dict of an optimizer counts
parameters by group: resume old checkpoints before the change, or map them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    Ev,
    Example,
    Finding,
    Fix,
    Optimizer,
    OptimizerFacts,
    OptimizerWork,
    Price,
    Saving,
    Settings,
    draw,
)

from ..shared._places import made_at
from ..shared._words import count, each_step
from ._fused_steps import fused_us

_FIX = Fix(
    "Make one group of all parameters with the same settings",
    "numerics",
    'groups = [{"params": [p], "lr": lr_of(name)} for name, p in model.named_parameters()]',
    "by_lr = defaultdict(list)\n"
    "for name, p in model.named_parameters():\n"
    "    by_lr[lr_of(name)].append(p)\n"
    'groups = [{"params": params, "lr": lr} for lr, params in by_lr.items()]',
)


def check(
    price: Price,
    work: OptimizerWork,
    facts: OptimizerFacts | None,
    settings: Settings | None,
    *,
    min_groups: int = 16,  # fewer cost less than a step's own Python
    min_times: float = 4.0,  # as many groups as settings: two groups of one setting may have been made on purpose
    min_share: float = 0.03,  # a few lines to change, and checkpoints to think of
) -> Iterator[Finding]:
    for one in facts.optimizers if facts else ():
        groups, kinds = one.groups or 0, one.settings or 1
        if groups < min_groups or groups < min_times * kinds or one.name != work.name:
            continue
        if work.us < min_share * price.ops.steps.step_us:
            continue
        saving = _saving(price, work, one, kinds, settings)
        if saving is not None and saving.high_us < min_share * price.scale.step_us:
            continue
        yield Finding(
            message=(
                f"{one.name} steps {count(groups)} groups of parameters one after the other, which have "
                f"{count(kinds)} different {'setting' if kinds == 1 else 'settings'}: its steps take "
                f"{each_step(price, work.us)}."
            ),
            saving=saving,
            where=(*made_at(one), *((work.where,) if work.where else ())),
            facts={"groups": groups, "settings": kinds, "optimizer_us": work.us, "tensors": one.tensors},
            fix=_FIX,
            claims=("optimizer",),
            at_most="medium",
        )


def _saving(price: Price, work: OptimizerWork, one: Optimizer, kinds: int, settings: Settings | None) -> Saving | None:
    """On a CPU the optimizer's time less that of a fused step for each setting; None where that is not known."""
    step_us = fused_us(one, (settings and settings.threads) or 1) if one.fused else None
    if step_us is None or price.on_device or price.ops.device.kind != "none":
        return None
    low_us, high_us = price.deprofiled.us(price.deprofiled.in_part("optimizer", work.us, work.ops))
    how = f"the optimizer's time, less what one fused step for each of {kinds} settings takes: measured on a Xeon"
    least_us, most_us = min(low_us, work.us), min(high_us, work.us)
    # Arithmetic is shared by the settings; what a call takes beside it comes once for each of them.
    low_us, high_us = max(least_us - kinds * step_us[1], 0.0), max(most_us - step_us[0], 0.0)
    return price.of_us(low_us, high_us, how, basis="modelled")


def _facts(groups: int, settings: int, fused: bool = True) -> dict[str, Any]:
    made = {"name": "AdamW", "fused": fused, "tensors": 160, "groups": groups, "settings": settings}
    return {"optimizers": [made | {"state_bytes": 400_000, "state_dtypes": ["float32"]}], "settings": {"threads": 2}}


_DRAWN = draw(
    """
    step   [1                                ][2                                ]
    cpu    [F   ][B   ][O                    ][F   ][B   ][O                    ]
    cpu                [A                   ]             [A                   ]
    """,
    us=400,
    O=Ev("Optimizer.step#AdamW.step", "user_annotation"),
    A=Ev("aten::_fused_adamw_", times=160),
)

EXAMPLES = [
    Example(
        "a group for each parameter, with two weight decays",
        _DRAWN,
        facts=_facts(160, 2),
        saves_us=(4000, 9000),
        says=("160 groups", "2 different settings"),
    ),
    Example("the same without the fused form", _DRAWN, facts=_facts(160, 2, fused=False), saves_us="unknown"),
    Example("a learning rate for each layer", _DRAWN, facts=_facts(24, 24), near_miss=True),
    Example("two groups", _DRAWN, facts=_facts(2, 2)),
    Example("a bare trace", _DRAWN),
]
