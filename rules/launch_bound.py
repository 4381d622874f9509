"""GPU waits for kernel launches.

## What it looks at
Gaps in which the device has nothing queued while the host is on its way to the next launch, op by op. Shown with
it: how many launches a step has, what one costs the host, and how short the kernels are.

## Why it costs time
Each op of PyTorch costs the host some microseconds before its kernel is launched. Where kernels are shorter than
that, the device finishes each of them before the next one is there.

## How to fix it
Give the host less to do per kernel: `torch.compile(model)` fuses small kernels, `mode="reduce-overhead"` replays a
whole region as one CUDA graph. Use fused layers and optimizers. A larger batch makes every kernel longer at the
same number of launches.

## When to leave it
Models whose shapes change at every step: graphs would be recorded again and again. Short runs, in which compiling
costs more than it gives back.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    BACKWARD,
    ELEMENTWISE,
    FORWARD,
    GEMM,
    Breakdown,
    Ev,
    Example,
    Finding,
    Fix,
    GpuIdle,
    Launches,
    RankRecord,
    Replay,
    Scale,
    Trace,
    draw,
    edits,
    replayed_or,
)

from ._words import count, percent, time


def check(
    trace: Trace,
    launches: Launches,
    idle: GpuIdle,
    breakdown: Breakdown,
    scale: Scale,
    record: RankRecord | None,
    replay: Replay | None,
    *,
    min_share: float = 0.05,  # the remedy is a compiler: less than 5 % of the step is not worth its surprises
) -> Iterator[Finding]:
    idle_us, share = breakdown.us("idle_launch"), breakdown.share("idle_launch")
    if share < min_share:
        return
    # A compiled region that ran has its row, whoever recorded the trace.
    ran = bool(trace.events.named("CompiledFunction", "Torch-Compiled Region").any())
    compiled = True if ran else record.settings.compiled if record else None
    fused = [edits.fuse(replay.launching, into=replay.steps)] if replay else []
    saving = replayed_or(
        scale.saving(
            0.0,
            idle_us,
            "nothing where regions cannot be captured (changing shapes, syncs inside); at most all these gaps",
        ),
        replay,
        [],
        fused,
        "low: regions cannot be captured (changing shapes, syncs inside); high: the step replayed with one launch",
        scale.scaled(idle_us),
    )
    if saving.high_us < min_share * scale.step_us:
        return
    places = tuple(group.where for group in idle.top("idle_launch", 3) if group.where)
    yield Finding(
        message=(
            f"The GPU waits {time(scale.scaled(idle_us))} of each step ({percent(share)}) for its next launch: "
            f"{count(launches.per_step)} launches a step start kernels with a median of {time(launches.kernel_us)}, "
            f"{percent(launches.short_share)} of them under 10 µs."
        ),
        saving=saving,
        where=places,
        facts={
            "idle_launch_us": idle_us,
            "launches": launches.per_step,
            "launch_us": launches.launch_us,
            "kernel_us": launches.kernel_us,
            "short_share": launches.short_share,
            "queue_delay_us": launches.queue_delay_us,
            "compiled": compiled,
            "cuda_graphs": launches.graphs,
        },
        fix=_fix(compiled, launches.graphs),
        claims=("idle_launch",),
    )


def _fix(compiled: bool | None, graphs: bool) -> Fix:
    if graphs:
        return Fix("Launch less outside the CUDA graphs: fused optimizer, fewer small ops between regions", "numerics")
    if compiled:
        return Fix(
            "Replay the compiled regions as CUDA graphs",
            "numerics",
            "model = torch.compile(model)",
            'model = torch.compile(model, mode="reduce-overhead")',
        )
    return Fix(
        "Compile the model, so that small kernels are fused and launched together",
        "numerics",
        "model = Net().to(device)",
        'model = torch.compile(Net().to(device), mode="reduce-overhead")',
    )


_ADDS = Ev("aten::add", times=20)
_SHORT = Ev(ELEMENTWISE.name, "kernel", times=20, fill=0.2)

EXAMPLES = [
    Example(
        "kernels shorter than the host needs to launch them",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [F                   ][F                   ]
            gpu 7   [K                   ][K                  ]
            """,
            us=25,
            F=_ADDS,
            K=_SHORT,
        ),
        saves_us=(0, 550),
        says=("20 launches a step", "100 % of them under 10 µs"),
    ),
    Example(
        "the same in a compiled model",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [F                   ][F                   ]
            gpu 7   [K                   ][K                  ]
            """,
            us=25,
            F=_ADDS,
            K=_SHORT,
        ),
        facts={"settings": {"compiled": True}},
        saves_us=(0, 550),
    ),
    Example(
        "as many launches, but the queue is never empty",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [F       ]            [F       ]
            gpu 7   [K                   ][K                  ]
            """,
            us=25,
            F=_ADDS,
            K=Ev(ELEMENTWISE.name, "kernel", times=20),
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "few long kernels",
        draw(
            """
            step   [1                                 ][2                                 ]
            cpu    [F  ][B  ]                          [F  ][B  ]
            gpu 7   [K               ][K              ] [K               ][K              ]
            """,
            us=1000,
            F=FORWARD,
            B=BACKWARD,
            K=GEMM,
        ),
        saves_us=None,
    ),
]
