"""Most of a step on a CPU is elementwise work that torch.compile would fuse.

## What it looks at
Forward and backward pass on ranks without a device and without torch.compile: the time in elementwise ops, reductions
and normalizations as a share of the step. Steps with dropout and short steps are not reported.

## Why it costs time
Each of these ops reads tensors from memory and writes one back, which the next one reads again; each is a separate
call through PyTorch's dispatcher. torch.compile generates C++ loops that pass over the data once.

## How to fix it
`model = torch.compile(model)`, with a C++ compiler installed. It is worth a try, but not guaranteed to help. On one
core of an EPYC (torch 2.15, forward and backward pass alone, CPU time, on a busy machine) eighteen networks were
compiled. Five had such work in at least a third of their ops, steps above 5 ms and no dropout: they took 15 to 75 %
less time, including the one that was compiled after these limits were chosen. Two with dropout took 29 and 40 % more,
two with steps of 0.5 and 2 ms 54 and 22 % more; where matrix products, convolutions or lookups were most of the step,
it was between 20 % more and 34 % less. Compiling took 4 to 25 s; a nineteenth, a ResNet-18, was not compiled within
280 s.

## When to leave it
Scripts that train for less than a minute or two, and models whose shapes change all the time: they are compiled again
and again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import Category, Device, Ev, Example, Finding, Fix, Phases, Price, Settings, Treatment, draw, starts_in

from ..shared._compiled_regions import differentiated_again
from ..shared._places import set_at
from ..shared._words import count, each_step

# What Inductor makes one loop of: by the op's name without `aten::` and the underscore of what works in place.
_FUSED = frozenset(
    (
        *("add", "sub", "rsub", "mul", "div", "neg", "abs", "square", "pow", "sqrt", "rsqrt", "reciprocal", "addcmul"),
        *(
            "exp",
            "exp2",
            "log",
            "log1p",
            "expm1",
            "sin",
            "cos",
            "tanh",
            "sigmoid",
            "erf",
            "where",
            "clamp",
            "clamp_min",
        ),
        *("relu", "gelu", "silu", "elu", "softplus", "leaky_relu", "hardtanh", "threshold_backward", "gelu_backward"),
        *("silu_backward", "elu_backward", "softplus_backward", "tanh_backward", "sigmoid_backward", "maximum"),
        *("leaky_relu_backward", "minimum", "sum", "mean", "var", "var_mean", "native_layer_norm", "native_batch_norm"),
        *("native_layer_norm_backward", "native_batch_norm_backward", "native_group_norm", "_softmax", "_log_softmax"),
        *("native_group_norm_backward", "_softmax_backward_data", "_log_softmax_backward_data", "copy", "fill", "cat"),
        *("mse_loss", "mse_loss_backward", "roll", "cumsum", "clamp_min", "upsample_nearest2d"),
    )
)
_DROPOUT = ("aten::bernoulli_", "aten::native_dropout")


def check(
    price: Price,
    device: Device,
    phases: Phases,
    settings: Settings | None,
    *,
    min_share: float = 0.35,  # of the step: below it, compiled networks were as often slower as faster (see the page)
    min_step_us: float = 5_000.0,  # entering compiled code takes 0.2 to 0.5 ms a step, which made shorter steps slower
) -> Iterator[Finding]:
    known = settings is not None and settings.compiled is False
    if device.kind != "none" or price.on_device or not known or differentiated_again(price.ops):
        return
    recorded, scale = price.ops, price.scale
    events, steps = recorded.events, recorded.steps
    if scale.step_us < min_step_us or events.exactly(*_DROPOUT).any():
        return
    names = [name.removeprefix("aten::").removesuffix("_") for name in events.names]
    fused = np.array([name in _FUSED for name in names])
    rows = np.flatnonzero(fused[events.name] & events.of(Category.CPU_OP) & (steps.step_of(events.start_ns) >= 0))
    starts = events.start_ns[rows]
    rows = rows[starts_in(starts, phases.forward) | starts_in(starts, phases.backward)]
    spent_us = steps.per_step_us(float(recorded.nesting.self_ns[rows].sum()))
    if spent_us < min_share * steps.step_us:
        return
    yield Finding(
        message=(
            f"{count(len(rows) / steps.count)} elementwise ops, reductions and normalizations of the forward and "
            f"backward pass take {each_step(price, spent_us)}, one after another."
        ),
        where=set_at(settings, "model"),
        facts={
            "fusable_us": spent_us,
            "ops": len(rows) / steps.count,
            "saving": "not estimated: only a run of the compiled model shows it; worth trying",
        },
        fix=Fix(
            "Try `torch.compile` on the model",
            "numerics",
            "model = Model()",
            "model = torch.compile(Model())",
            Treatment("compile"),
        ),
        claims=("forward", "backward"),
        at_most="low",
    )


_LANE = "step [1               ][2               ]\ncpu  [E       ][M ][B ] [E       ][M ][B ] "
_TANH, _PRODUCT = Ev("aten::tanh", times=4), Ev("aten::addmm")
_EAGER = {"settings": {"compiled": False}}
EXAMPLES = [
    Example(
        "activations and gates take half of a step of 17 ms",
        draw(_LANE, us=1000, E=_TANH, M=_PRODUCT),
        facts=_EAGER,
        saves_us="unknown",
        says=("elementwise ops", "one after another"),
        fixes=("torch.compile",),
    ),
    Example(
        "the same, compiled already", draw(_LANE, us=1000, E=_TANH, M=_PRODUCT), facts={"settings": {"compiled": True}}
    ),
    Example("the same in a step of 0.85 ms", draw(_LANE, us=50, E=_TANH, M=_PRODUCT), facts=_EAGER, near_miss=True),
    Example(
        "with dropout",
        draw(_LANE, us=1000, E=Ev("aten::bernoulli_", times=4), M=_PRODUCT),
        facts=_EAGER,
        near_miss=True,
    ),
    Example("matrix products", draw(_LANE, us=1000, E=_PRODUCT, M=_TANH), facts=_EAGER),
]
