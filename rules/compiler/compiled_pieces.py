"""Compiled code runs in many small regions, with guard checks for each.

## What it looks at
Compiled regions of torch.compile that follow one another in a step: the cache lookup before each, which checks whether
its guards still hold (types, shapes, attributes, Python values), and the Python from the end of one region to the
lookup of the next. Beside a device also the time inside a region before its first launch and after its last: the call
of the compiled code. Other time inside a region is not counted. Repeated blocks with several products each are not
reported: PyTorch's recipe "Reducing torch.compile cold start compilation time with regional compilation" recommends
compiling one and running it for all.

## Why it costs time
A lookup and the call around it take ten to thirty microseconds. A model compiled as a whole pays that once; thirty
layers compiled one by one pay it thirty times, and nothing is fused across layers.

## How to fix it
Compile the whole model, or its repeated blocks, rather than each layer. Remove graph breaks (rule graph-breaks). Once
a training runs without recompilations, `torch.compiler.set_stance(skip_guard_eval_unsafe=True)` skips most of the
guard checks.

## When to leave it
Blocks that are compiled one by one so that compiling takes minutes instead of hours, on a GPU that is the bottleneck
anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import (
    Ev,
    Example,
    Finding,
    Fix,
    Intervals,
    Price,
    Steps,
    Trace,
    draw,
    edits,
    intersect,
    subtract,
    total,
)

from ..shared._compiled_regions import LEAST_PIECES, LOOKUP, pieces_of
from ..shared._words import count, each_step

CONFIRMED = "measured pair on a CPU: thirty layers compiled one by one against the whole model, which saved 22 and 24 %"


def check(
    price: Price,
    *,
    min_share: float = 0.03,  # a model compiled as a whole spends 1 to 2 % of a small step on its one check
    min_pieces: float = LEAST_PIECES,  # two or three regions are a model and its loss, or a model with one break
) -> Iterator[Finding]:
    trace, steps, scale, gpu = price.ops.trace, price.ops.steps, price.scale, price.on_device
    found = pieces_of(price, min_pieces)
    if found is None:
        return
    pieces, spans = found
    spent_us = steps.per_step_us(total(spans))
    if spent_us < min_share * steps.step_us:
        return
    how = "low: regions cannot be merged; high: the checks, the calls and the Python between, without gains from fusion"
    left = 1 - 1 / pieces
    # Beside a device only the replay knows whether the host's time matters.
    model_us, bound_us = (0.0, 0.0 if gpu else spent_us * left), spent_us * left
    saving = price.saving([], [edits.remove_time(spans)], (), how, model_us=model_us, bound_us=bound_us)
    if not gpu:
        # Hardly a row is recorded in these stretches, so the profiler may have slowed them less than the rest, or not.
        as_recorded_us = min(spent_us, scale.step_us) * left
        saving = replace(saving, high_us=max(saving.high_us, as_recorded_us))
    if saving.high_us < min_share * scale.step_us:
        return
    yield Finding(
        message=(
            f"Compiled code runs in {count(pieces)} regions a step: guard checks{', calls' if gpu else ''} and the "
            f"Python between regions take {each_step(price, spent_us)}."
        ),
        saving=saving,
        facts={"pieces": pieces, "wrapper_us": spent_us},
        fix=Fix(
            "Compile the model as a whole",
            "numerics",
            "for layer in model.layers:\n    layer.compile()",
            "model.compile()",
        ),
        at_most="medium",
        measured_us=scale.scaled(_idle_us(trace, steps, spans)) if gpu else None,
    )


def _idle_us(trace: Trace, steps: Steps, spans: Intervals) -> float:
    """Time of these spans in which the device has nothing to do, µs per step."""
    return steps.of_window_us(total(subtract(intersect(spans, steps.window), trace.busy)))


_CHECK = Ev(LOOKUP, launches="")
_PIECE = Ev("Torch-Compiled Region: 0/0", launches="")
_STEPS = """
    step   [1                                          ][2                                          ]
    cpu    [L][P ] [L][P ] [L][P ] [L][P ] [B      ]     [L][P ] [L][P ] [L][P ] [L][P ] [B      ]
    """

EXAMPLES = [
    Example(
        "four layers, each compiled by itself",
        draw(_STEPS, us=20, L=_CHECK, P=_PIECE),
        saves_us=(0, 300),
        says=("4 regions a step",),
    ),
    Example(
        "the same beside a GPU that is behind",
        draw(
            """
            step   [1                                          ][2                                          ]
            cpu    [L][P ] [L][N ] [L][N ] [L][N ]             [L][P ] [L][N ] [L][N ] [L][N ]
            gpu 7      [K                                          ][K                                          ]
            """,
            us=20,
            L=_CHECK,
            P=Ev(_PIECE.name, launches="kernel"),
            N=_PIECE,
        ),
        near_miss=True,
    ),
    Example(
        "four blocks of a model, which run the same compiled code",
        draw(
            """
            step   [1                                          ][2                                          ]
            cpu    [L][P   ] [L][P   ] [L][P   ] [L][P   ] [B]   [L][P   ] [L][P   ] [L][P   ] [L][P   ] [B]
            cpu        [M ]      [M ]      [M ]      [M ]            [M ]      [M ]      [M ]      [M ]
            """,
            us=20,
            L=_CHECK,
            P=_PIECE,
            M=Ev("aten::mm", times=4, launches=""),
        ),
        near_miss=True,
    ),
    Example(
        "one model compiled as a whole",
        draw(
            "step [1              ][2              ]\ncpu  [L][R  ][B     ]  [L][R  ][B     ]",
            us=100,
            L=_CHECK,
            R=_PIECE,
        ),
        near_miss=True,
    ),
    Example("no torch.compile", draw("step [1        ][2        ]\ncpu  [F  ][B   ][F  ][B   ]", us=1000)),
]
