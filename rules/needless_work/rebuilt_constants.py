"""Constants are recomputed in every step.

## What it looks at
Ops of the training step whose results depend only on numbers of the script and on tensors that the script has held
for many steps and that nothing has written to since: grids, masks, positions, frozen weights, a dataset that is
preprocessed at each use. `advisor run` observes what ops read and write in two steps. Batches and what is computed from
them, random numbers, weights that are trained and tensors that are overwritten later are never among them; nor is a
slice of a tensor that is another slice in the next step.

## Why it costs time
The result is the same each time, or one of a few, and could be kept.

## How to fix it
Compute it before the loop, once for each input that occurs; in a module keep it with `register_buffer`.

## When to leave it
Where a Python number changes it from step to step, which no trace shows: a schedule, a temperature. Where the results
of all inputs together do not fit into memory, or weights are kept small (quantized) on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    BACKWARD,
    FORWARD,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    Reused,
    UnfollowedForwards,
    draw,
    duration,
)

from ..shared._places import place
from ..shared._words import percent, plural
from ._same_result import owned, reuse

CONFIRMED = "measured pair on a CPU: the rays of all pixels of a camera, computed in each step against once"

# Of a few calls that are all overhead the profiler may have made all that there seems to be: a third has to be sure.
_SURE = 1 / 3

# A tensor that one number fills is as quickly filled as read: kept, it saves nothing.
_FILLS = (
    *("aten::zeros", "aten::ones", "aten::full", "aten::zeros_like", "aten::ones_like", "aten::full_like"),
    *("aten::new_zeros", "aten::new_ones", "aten::new_full"),
)


def check(
    price: Price,
    reused: Reused,
    lines: Lines | None,
    forwards: UnfollowedForwards | None,
    *,
    min_share: float = 0.03,  # lines to move out of the loop: not worth it below 3 % of the step
) -> Iterator[Finding]:
    _, rows = owned(price.ops, reused, forwards)
    if price.ops.events.exactly(*_FILLS)[rows].all():
        return
    work = reuse(price, reused, lines, rows, rows[:0])
    if not work.is_material(price, min_share, _SURE):
        return
    per_step = len(rows) / price.ops.steps.count
    yield Finding(
        message=(
            f"Each step runs {plural(per_step, 'op')}{place(next(iter(work.where), None))} whose results depend only "
            f"on Python numbers and on tensors that never change: {duration(price.scale.scaled(work.us))} of it "
            f"({percent(work.us / price.ops.steps.step_us)})."
        ),
        saving=work.saving,
        where=work.where,
        facts={"ops": per_step, "constant_us": work.us},
        fix=Fix(
            "Compute it once before the loop",
            "exact",
            "for step in range(steps):\n    start, toward = rays(cameras[view])",
            "bundles = [rays(camera) for camera in cameras]\nfor step in range(steps):\n"
            "    start, toward = bundles[view]",
        ),
        claims=work.claims,
        # A number that Python changes from step to step is not seen.
        at_most="medium",
    )


_STEPS = """
    step   [1                           ][2                           ]
    cpu    [G    ][C    ][A   ][B      ]  [G    ][C    ][A   ][B      ]
    """
_OPS: dict[str, Any] = {"G": Ev("aten::arange"), "C": Ev("aten::cos"), "A": FORWARD, "B": BACKWARD}
_NAMES = ["aten::arange", "aten::cos", "aten::linear"]


def _facts(constant: list[int]) -> dict[str, Any]:
    return {"reused": {"names": _NAMES, "ops": [0, 1, 2], "again": [], "constant": constant}}


EXAMPLES = [
    Example(
        "a table of cosines is made in each step",
        draw(_STEPS, us=100, **_OPS),
        facts=_facts([0, 1]),
        saves_us=(1350, 1600),
        says=("2 ops whose results depend only on Python numbers",),
    ),
    Example(
        "the same beside a GPU",
        draw(
            """
            step   [1                           ][2                           ]
            cpu    [G    ][C    ][A   ][B      ]  [G    ][C    ][A   ][B      ]
            gpu 7     [K   ][L    ][M   ][M     ]    [K   ][L    ][M   ][M     ]
            """,
            us=100,
            G=Ev("aten::arange", launches="kernel"),
            C=Ev("aten::cos", launches="kernel"),
            A=FORWARD,
            B=Ev(BACKWARD.name, launches="kernel"),
            K=Ev("void at::native::elementwise_kernel_with_index<int>", "kernel"),
            L=Ev("void at::native::vectorized_elementwise_kernel<4, cos>", "kernel"),
            M=Ev("ampere_sgemm_128x64_tn", "kernel"),
        ),
        facts=_facts([0, 1]),
        saves_us=(700, 1500),
    ),
    Example(
        "a tensor of zeros is made in each step",
        draw(_STEPS, us=100, **(_OPS | {"G": Ev("aten::zeros"), "C": Ev("aten::zeros_like")})),
        facts={
            "reused": {
                "names": ["aten::zeros", "aten::zeros_like", "aten::linear"],
                "ops": [0, 1, 2],
                "again": [],
                "constant": [0, 1],
            }
        },
        near_miss=True,
    ),
    Example(
        "positions of a batch whose length is another one each time",
        draw(_STEPS, us=100, **_OPS),
        facts=_facts([]),
        near_miss=True,
    ),
    Example(
        "a table that is small beside the step",
        draw(_STEPS, us=1000, **(_OPS | {"G": Ev("aten::arange", fill=0.001), "C": Ev("aten::cos", fill=0.001)})),
        facts=_facts([0, 1]),
        near_miss=True,
    ),
    Example("nobody looked", draw(_STEPS, us=100, **_OPS), facts={}, skipped="was not recorded"),
]
