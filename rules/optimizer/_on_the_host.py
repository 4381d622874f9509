"""Parameters that are offloaded: the optimizer goes over them on the host, op by op, and the device waits."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import (
    Ev,
    Example,
    Finding,
    Fix,
    GpuIdle,
    Intervals,
    OptimizerWork,
    Price,
    draw,
    duration,
    edits,
    intersect,
    total,
)

from ..shared._words import count, percent


def updates_on_the_host(
    price: Price, work: OptimizerWork, idle: GpuIdle, spans: Intervals, saved: tuple[float, float], fix: Fix
) -> Iterator[Finding]:
    """The finding. spans: of these steps; saved: (least, most) share of their time that fusing gives back."""
    steps = price.ops.steps
    waited_us = steps.per_step_us(total(intersect(idle.intervals["idle_host"], spans)))
    least, most = ([edits.scale_time(spans, 1 - share)] for share in saved)
    how = "what fused=True gained over the loop in measurements on a CPU; the device waits for the rest"
    model_us = saved[0] * waited_us, saved[1] * waited_us
    saving = price.saving(least, most, ("idle_host",), how, model_us=model_us, bound_us=model_us[1])
    tensors = f"{count(work.tensors)} parameters" if work.tensors else "the parameters"
    yield Finding(
        message=(
            f"{work.name} updates {tensors} one by one on the host, in {count(work.ops)} ops a step, and the GPU is "
            f"idle meanwhile: {duration(price.scale.scaled(waited_us))} of each step "
            f"({percent(waited_us / steps.step_us)})."
        ),
        saving=saving,
        where=(work.where,) if work.where else (),
        facts={"optimizer_us": work.us, "ops": work.ops, "tensors": work.tensors, "idle_us": waited_us},
        fix=replace(fix, title=f"{fix.title}, or keep parameters and optimizer state on the GPU if they fit"),
        claims=("idle_host",),
    )


_STEPS = """
    step   [1                         ][2                         ]
    cpu    [F   ][B   ][O           ]  [F   ][B   ][O           ]
    cpu                [A          ]               [A          ]
    gpu 7   [K   ][K  ]                 [K   ][K  ]
    """
ON_THE_HOST = [
    Example(
        "AdamW of offloaded parameters, for which the GPU waits",
        draw(
            _STEPS,
            us=1000,
            O=Ev("Optimizer.step#AdamW.step", "user_annotation"),
            A=Ev("aten::mul_", times=60, launches=""),
        ),
        saves_us=(6000, 13000),
        says=("on the host", "the GPU is idle"),
        fixes=("fused=True",),
    )
]
