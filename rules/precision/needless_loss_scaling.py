"""GradScaler is used although autocast runs in bf16.

## What it looks at
The ops of `GradScaler` (`_amp_foreach_non_finite_check_and_unscale_`, `_amp_update_scale_`) in a training whose
autocast regions run in bf16, as capture recorded it.

## Why it costs time
Loss scaling keeps small gradients above the smallest number that fp16 can represent. bf16 has the range of fp32, so
scaling is not needed. The scaler still reads and writes every gradient again in each step, and checks on the device
whether one of them is infinite: the host waits for the result before the optimizer may start.

## How to fix it
Remove the scaler, and call `loss.backward()` and `optimizer.step()` directly.

## When to leave it
Trainings that use fp16 in some regions and bf16 in others, or that rely on the scaler to skip steps with infinite
gradients: `torch.nn.utils.clip_grad_norm_` with an explicit check can replace that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    FORWARD,
    GEMM,
    ITEM,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Nesting,
    Price,
    Scale,
    Settings,
    StepOps,
    Steps,
    Trace,
    draw,
    duration,
    edits,
)

from ..shared._places import first_line, place
from ..shared._words import percent

_SCALING = ("aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_")


def check(
    recorded: StepOps,
    steps: Steps,
    scale: Scale,
    price: Price,
    settings: Settings,
    lines: Lines,
    *,
    min_share: float = 0.005,  # three calls to remove, and one synchronization less: worth it even for little
) -> Iterator[Finding]:
    events = recorded.events
    if settings.autocast_dtype != "bfloat16":
        return
    scaling = events.exactly(*_SCALING) & events.of(Category.CPU_OP) & recorded.links.inside
    rows = _with_its_question(recorded.trace, recorded.nesting, np.flatnonzero(scaling).astype(np.int64))
    if not len(rows):
        return
    work_us, taken = price.spent_us(rows), "of each step"
    if price.on_device:
        taken = "of the device's work per step, and a synchronization of the host"
    how = "low: the wait moves elsewhere; high: the step without the scaler"
    saving = price.saving([], [edits.remove(rows)], (), how)
    if saving.high_us < min_share * scale.step_us:
        return
    where = first_line(lines, rows)
    yield Finding(
        message=(
            "Autocast runs in bf16, whose range needs no loss scaling, but GradScaler unscales and checks all "
            f"gradients{place(where)}: {duration(scale.scaled(work_us))} {taken} ({percent(work_us / steps.step_us)} "
            "of its time)."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"scaling_us": work_us},
        fix=Fix(
            "Remove the GradScaler",
            "numerics",
            "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
            "loss.backward()\noptimizer.step()",
        ),
        at_most="medium",
    )


def _with_its_question(trace: Trace, nesting: Nesting, rows: Ints) -> Ints:
    """The ops of the scaler, and the `.item()` that follows each check before any other op."""
    events = trace.events
    ops = np.flatnonzero(events.of(Category.CPU_OP) & nesting.outermost)
    questions = events.exactly("aten::item")
    found = set(rows.tolist())
    for row in rows[events.named("non_finite_check")[rows]].tolist():
        mine = ops[events.thread[ops] == events.thread[row]]
        at = int(np.searchsorted(mine, row, side="right"))
        if at < len(mine) and questions[mine[at]]:
            found.add(int(mine[at]))
    return np.array(sorted(found), np.int64)


_CHECK = Ev("aten::_amp_foreach_non_finite_check_and_unscale_", launches="kernel")
_STEPS = """
    step   [1                       ][2                       ]
    cpu    [F ][C ][I     ][O ]       [F ][C ][I     ][O ]
    gpu 7   [K   ][E  ][M]  [E]        [K   ][E  ][M]  [E]
    """
_BF16 = {"settings": {"autocast": True, "autocast_dtype": "bfloat16"}}
_FP16 = {"settings": {"autocast": True, "autocast_dtype": "float16"}}
_COPY = Ev("Memcpy DtoH (Device -> Pageable)", bytes=4)

EXAMPLES = [
    Example(
        "a scaler beside bf16",
        draw(_STEPS, us=100, C=_CHECK, I=ITEM, O="aten::_foreach_add_", M=_COPY),
        facts=_BF16,
        saves_us=(0, 1600),
        says=("needs no loss scaling",),
    ),
    Example(
        "a scaler beside fp16, where it belongs",
        draw(_STEPS, us=100, C=_CHECK, I=ITEM, O="aten::_foreach_add_", M=_COPY),
        facts=_FP16,
        near_miss=True,
    ),
    Example(
        "bf16 without a scaler",
        draw(
            "step [1           ][2           ]\ncpu  [C ][F  ]     [C ][F  ]\ngpu 7  [V ][V   ]    [V ][V   ]",
            us=100,
            C=FORWARD,
            V=GEMM,
        ),
        facts=_BF16,
    ),
]
