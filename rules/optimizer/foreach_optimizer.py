"""The optimizer uses foreach ops, although a fused implementation exists.

## What it looks at
Optimizer steps of Adam, AdamW and SGD on a GPU that consist of `_foreach_` ops, how long their kernels take, how often
they read and write the parameters, the gradients and the state, and how long the GPU is idle while the host launches
them.

## Why it costs time
Each `_foreach_` op reads its lists from memory and writes one back. An Adam update goes through memory some twenty
times, where the fused one reads four lists and writes three. Such kernels are entirely memory-bound.

## How to fix it
`fused=True` in the optimizer's constructor: Adam and AdamW since PyTorch 2.0, SGD since 2.3.

## When to leave it
Parameters that are not floating-point numbers on one GPU, or a step that must be differentiated. A sharding or
offloading library may provide its own optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    GEMM,
    OPTIMIZER,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    GpuIdle,
    Ints,
    OptimizerFacts,
    OptimizerWork,
    Price,
    StepOps,
    Treatment,
    draw,
    duration,
    edits,
    intersect,
    total,
    union,
)

from ..shared._places import made_at
from ..shared._words import count, percent

# How often each op of an update goes through lists as long as the parameters: those that it reads and the one that it
# writes. Adam adds a number to the root (`add_`), SGD adds lists.
_ADAM = {"add": 3, "add_": 2, "addcdiv_": 4, "addcmul_": 3, "div_": 2, "lerp_": 3, "maximum_": 3, "mul_": 2, "sqrt": 2}
_PASSES = {"Adam": _ADAM, "AdamW": _ADAM, "SGD": {"add": 3, "add_": 3, "mul_": 2}}
# The fused update: parameter, gradient and state are read, all but the gradient are written.
FUSED = {"Adam": 7, "AdamW": 7, "SGD": 5}
_AMSGRAD_PASSES = 2
_CLAIMS = ("compute", "idle_launch")
_TOLD = 0.1  # waits below a tenth of the kernels' time are not worth their words
# Each group of parameters has one such op: the update itself, and what SGD does with its momentum.
_ONE_PER_GROUP = {"Adam": "addcdiv_", "AdamW": "addcdiv_", "SGD": "mul_"}


def check(
    price: Price,
    work: OptimizerWork,
    facts: OptimizerFacts | None,
    idle: GpuIdle | None,
    *,
    min_share: float = 0.02,  # one argument of a constructor; below 2 % of the step the gain is not noticeable
) -> Iterator[Finding]:
    if work.name not in FUSED or not price.on_device:
        return
    recorded, steps, scale = price.ops, price.ops.steps, price.scale
    update = _lists(recorded, work)
    kept = kept_passes(update.names, work.name)
    if kept is None:
        return
    spent_us = recorded.us(update.kernels)
    calls = max(round(work.calls * steps.count), 1)
    waited_us = _waited_us(recorded, update, idle) * (1 - min(calls / len(update.ops), 1))
    bound_us = min(spent_us * (1 - kept), price.measured_us(("compute",))) + waited_us
    how = (
        "low: a fused update is not faster here; high: it reads and writes memory less often, at the same bandwidth, "
        "and takes the host one op"
    )
    fused = [edits.scale(update.kernels, kept), edits.fuse(update.ops, into=calls)]
    saving = price.saving([], fused, _CLAIMS, how, model_us=(0.0, bound_us), bound_us=bound_us)
    if saving.high_us < min_share * scale.step_us:
        return
    known = next((one for one in facts.optimizers if one.name == work.name), None) if facts else None
    yield Finding(
        message=(
            f"{work.name} updates parameters with {count(len(update.ops) / steps.count)} foreach ops a step, which go "
            f"through memory {1 / kept:.1f} times as often as a fused update: {duration(scale.scaled(spent_us))} of "
            f"the device's work in each step ({percent(spent_us / steps.step_us)})"
            f"{f', and it waits {duration(scale.scaled(waited_us))} for them' if waited_us > _TOLD * spent_us else ''}."
        ),
        saving=saving,
        where=(*made_at(known), *((work.where,) if work.where else ())),
        facts={
            "kernels_us": spent_us,
            "ops": len(update.ops) / steps.count,
            "kept_share": kept,
            "waited_us": waited_us,
        },
        fix=Fix(
            "Set `fused=True`",
            "numerics",
            f"torch.optim.{work.name}(model.parameters(), ...)",
            f"torch.optim.{work.name}(model.parameters(), ..., fused=True)",
            Treatment("optimizer", {"fused": True}),
        ),
        claims=_CLAIMS if waited_us else ("compute",),
    )


def _waited_us(recorded: StepOps, update: _Lists, idle: GpuIdle | None) -> float:
    """How long the device is idle while the host is in these ops, launching, µs per step."""
    if idle is None:
        return 0.0
    events = recorded.events
    spans = union(events.start_ns[update.ops], events.end_ns[update.ops])
    return recorded.steps.per_step_us(total(intersect(idle.intervals["idle_launch"], spans)))


class _Lists(Struct, frozen=True, eq=False):
    """`_foreach_` ops of optimizer steps that launch kernels (rows), what each is called, and those kernels."""

    ops: Ints
    names: list[str]
    kernels: Ints


def _lists(recorded: StepOps, work: OptimizerWork) -> _Lists:
    """Ops on numbers of the host alone, such as counters of steps, launch nothing and are left out."""
    events, links = recorded.events, recorded.links
    listed = np.zeros(len(events), bool)
    listed[np.array(work.rows, np.int64)] = True
    listed &= events.named("_foreach_")
    launched = np.flatnonzero(recorded.trace.device_work & (links.launch >= 0) & links.inside)
    owner = recorded.nesting.outer_op[links.launch[launched]]
    mine = (owner >= 0) & listed[np.maximum(owner, 0)]
    ops = np.unique(owner[mine])
    names = [events.text(row).partition("_foreach_")[2] for row in ops.tolist()]
    return _Lists(ops, names, launched[mine])


def kept_passes(names: Sequence[str], optimizer: str) -> float | None:
    """Share of the passes through memory that a fused update makes; None where that cannot be told or is no fewer.

    names: the ops of some updates, without `aten::_foreach_`.
    """
    passes, groups = _PASSES[optimizer], names.count(_ONE_PER_GROUP[optimizer])
    if not groups or not set(names) <= passes.keys():
        return None
    fused = FUSED[optimizer] + (_AMSGRAD_PASSES if "maximum_" in names else 0)
    kept = fused * groups / sum(passes[one] for one in names)
    return kept if kept < 1 else None


_STEP = Ev("Optimizer.step#AdamW.step", "user_annotation")
_LISTS = Ev("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>>", "kernel")


_SOON = " [P      ][L                   ]          "
_AHEAD = " [P                         ][L         ]"


def _adamw(products: Ev, lists: Ev, until: str = _SOON) -> Drawing:
    """Two steps with AdamW on lists: products of forward and backward on the device, then the update's kernels."""
    return draw(
        f"""
        step   [1                                      ][2                                      ]
        cpu    [F ][B ][O                     ]          [F ][B ][O                     ]
        cpu            [d][l][m][q][r][b][e][u]                  [d][l][m][q][r][b][e][u]
        gpu 7  {until}{until}
        """,
        us=100,
        O=_STEP,
        d="aten::_foreach_mul_",
        l="aten::_foreach_lerp_",
        m="aten::_foreach_mul_",
        q="aten::_foreach_addcmul_",
        r="aten::_foreach_sqrt",
        b="aten::_foreach_div_",
        e="aten::_foreach_add_",
        u="aten::_foreach_addcdiv_",
        P=replace(products, times=2),
        L=replace(lists, times=8),
    )


def _one_op(step: Ev, op: str) -> Drawing:
    """Two steps whose optimizer runs one op on lists."""
    return draw(
        """
        step   [1                                 ][2                                 ]
        cpu    [F ][B ][O          ]                [F ][B ][O          ]
        cpu            [u         ]                         [u         ]
        gpu 7   [P      ][L                    ]    [P      ][L                    ]
        """,
        us=100,
        O=step,
        u=op,
        P=replace(GEMM, times=2),
        L=_LISTS,
    )


EXAMPLES = [
    Example(
        "AdamW in eight ops on lists: 20 passes through memory, where a fused update makes 7",
        _adamw(GEMM, _LISTS),
        saves_us=(0, 1700),
        says=("AdamW", "8 foreach ops", "2.9 times"),
    ),
    Example(
        "the same with kernels that hardly take time, for whose launches the device waits",
        _adamw(GEMM, replace(_LISTS, fill=0.02)),
        saves_us=(0, 1950),
        says=("44 µs of the device's work", "it waits 1.89 ms"),
    ),
    Example(
        "the same while the device is busy with products that were launched before",
        _adamw(GEMM, replace(_LISTS, fill=0.02), until=_AHEAD),
        near_miss=True,
    ),
    Example("SGD without a momentum is one op on lists", _one_op(OPTIMIZER, "aten::_foreach_add_"), near_miss=True),
    Example("fused already", _one_op(_STEP, "aten::_fused_adamw_")),
]
