"""Gradients are filled with zeros instead of being freed (set_to_none=False).

## What it looks at
Fills (`aten::zero_`, `aten::_foreach_zero_`) inside `zero_grad`, and the additions to the existing gradients that they
make necessary. On a device the kernels of both, and their launches.

## Why it costs time
Writing zeros into every gradient and then adding to them reads and writes all gradients twice more than storing the
new ones does.

## How to fix it
`optimizer.zero_grad()` frees the gradients since PyTorch 2.0 (`set_to_none=True` is the default). Call that instead of
`zero_grad(set_to_none=False)`, or of a loop with `p.grad.zero_()`.

## When to leave it
Code that reads `p.grad` of parameters without a gradient in this step and expects zeros there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    BACKWARD,
    GRADIENT_STORE,
    ZERO_GRAD,
    Category,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    RankRecord,
    RowMask,
    Steps,
    Trace,
    Treatment,
    constant,
    draw,
    duration,
    edits,
    intersect,
    total,
)

from ..shared._words import each_step, percent, plural

CONFIRMED = "measured pair on a CPU: set_to_none=False against the default, a wide network"

# What an addition into a gradient costs, in passes over it.
_DETOUR = constant("memory.gradient_detour").value


def check(
    price: Price,
    device: Device,
    record: RankRecord | None,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one argument of one call; below 2 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    trace, steps, scale = price.ops.trace, price.ops.steps, price.scale
    events = trace.events
    calls = events.of(Category.ANNOTATION) & events.named("Optimizer.zero_grad#")
    if price.on_device:
        yield from _on_device(price, calls, record, lines, min_share)
        return
    if device.kind != "none":
        return
    fills = events.exactly("aten::zero_")
    adds = events.exactly("aten::add_")
    storing = events.exactly(GRADIENT_STORE)
    fill_us = _inside(trace, steps, fills, calls)
    if fill_us < min_share * steps.step_us:
        return
    add_us = _inside(trace, steps, adds, storing)
    where = lines.where_op(int(np.flatnonzero(calls)[0])) if lines else None
    yield Finding(
        message=(
            f"zero_grad fills the gradients with zeros: {each_step(price, fill_us)}, "
            f"and adding to them takes another {duration(scale.scaled(add_us))}."
        ),
        # Few long ops, which the profiler hardly slows.
        saving=price.long_ops(
            (fill_us + add_us, fill_us + _DETOUR * add_us),
            (),
            "low: the fills and the additions; high: plus as much again for new gradients, which are first written to "
            "memory of their own, none of it slowed by the profiler",
        ),
        where=(where,) if where else (),
        facts={"fill_us": fill_us, "add_us": add_us},
        fix=_FIX,
        claims=("optimizer", "backward"),
    )


def _on_device(
    price: Price, calls: RowMask, record: RankRecord | None, lines: Lines | None, min_share: float
) -> Iterator[Finding]:
    """The finding where a device fills and adds: the step replayed without both."""
    ops, scale, steps = price.ops, price.scale, price.ops.steps
    events, inside = ops.events, ops.links.inside & price.ops.events.of(Category.CPU_OP)
    filling = events.exactly("aten::zero_", "aten::_foreach_zero_") & inside & ops.nesting.within(calls)
    # Fills by the list call fills of single tensors on some devices: the outer one stands for both.
    fills = np.flatnonzero(filling & ops.nesting.outermost)
    storing = events.exactly(GRADIENT_STORE)
    adds = np.flatnonzero(events.exactly("aten::add_") & inside & ops.nesting.within(storing))
    fill_us, add_us, host_us = ops.device_us(fills), ops.device_us(adds), ops.us(fills)
    if not len(fills) or not len(adds):
        return
    # Of several passes for one update only the first needs no addition.
    cleared = float(calls[ops.links.inside].sum())
    tensors = sum(one.tensors or 0 for one in record.optimizers) if record else 0
    first = min(cleared * tensors / len(adds), 1.0) if tensors else 1.0
    gone = [edits.remove(fills), price.less(adds, first)]
    how = (
        "the fills and the first addition to each gradient: one that was freed is replaced by the new one, with no copy"
    )
    saving = price.saving(gone, gone, (), how, model_us=(fill_us + first * add_us,) * 2)
    if saving.high_us < min_share * scale.step_us:
        return
    where = lines.where_op(int(np.flatnonzero(calls)[0])) if lines else None
    yield Finding(
        message=(
            f"zero_grad fills the gradients with zeros in {plural(len(fills) / steps.count, 'op')} a step: "
            f"{duration(scale.scaled(host_us))} of the host's time ({percent(host_us / steps.step_us)}) and "
            f"{duration(scale.scaled(fill_us))} of the device's, and adding to them takes another "
            f"{duration(scale.scaled(add_us))} there."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"fill_us": fill_us, "add_us": add_us, "host_us": host_us},
        fix=_FIX if record else _FIX_OF_ANY_VERSION,
    )


# Gradients are dropped by default since PyTorch 2.0; a bare trace does not tell its version.
_FIX_OF_ANY_VERSION = Fix(
    "Set `set_to_none=True`, the default since PyTorch 2.0",
    "exact",
    "optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=True)",
    Treatment("set_to_none"),
)
_FIX = Fix(
    "Remove `set_to_none=False`",
    "exact",
    "optimizer.zero_grad(set_to_none=False)",
    "optimizer.zero_grad()",
    Treatment("set_to_none"),
)


def _inside(trace: Trace, steps: Steps, rows: RowMask, spans: RowMask) -> float:
    """Time of some rows inside the spans of others, within the window, µs per step."""
    events = trace.events
    outer = intersect(events.covered(spans), steps.window)
    inner = events.covered(rows)
    return steps.per_step_us(total(intersect(inner, outer)))


_STEPS = """
    step   [1                 ][2                 ]
    cpu    [Z  ][F    ][B    ] [Z  ][F    ][B    ]
    cpu    [O ]                [O ]
    """

_ON_DEVICE = """
    step   [1                             ][2                             ]
    cpu    [Z  ][F    ][B    ]              [Z  ][F    ][B    ]
    cpu    [O ]        [S   ]               [O ]        [S   ]
    cpu                 [A ]                             [A ]
    gpu 7     [E  ][K        ][E   ]           [E  ][K        ][E   ]
    """
_REST: dict[str, Any] = {
    "Z": ZERO_GRAD,
    "B": Ev(BACKWARD.name, launches=""),
    "S": Ev(GRADIENT_STORE, launches=""),
    "A": Ev("aten::add_"),
}

EXAMPLES = [
    Example(
        "zero_grad(set_to_none=False)",
        draw(_STEPS, us=100, Z=ZERO_GRAD, O="aten::zero_"),
        saves_us=(100, 400),
        says=("fills the gradients",),
    ),
    Example(
        "the same on a device, with an addition for each gradient",
        draw(_ON_DEVICE, us=100, O="aten::zero_", **_REST),
        saves_us=(300, 1000),
        says=("of the host's time",),
    ),
    Example(
        "gradients are dropped, and the kernels are the model's",
        draw(_ON_DEVICE, us=100, O="aten::mul_", **_REST),
        near_miss=True,
    ),
    Example(
        "a buffer of the model is zeroed, not gradients",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [Z ][F    ][O][B   ] [Z ][F    ][O][B  ]
            """,
            us=100,
            Z=ZERO_GRAD,
            O="aten::zero_",
        ),
        near_miss=True,
    ),
    Example(
        "gradients are dropped",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [Z ][F    ][B     ]  [Z ][F    ][B    ]
            """,
            us=100,
            Z=Ev(ZERO_GRAD.name, "user_annotation"),
        ),
    ),
]
