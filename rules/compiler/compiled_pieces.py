"""Compiled code runs in many small regions, with guard checks for each.

## What it looks at
Compiled regions of torch.compile that follow one another in a step: the cache lookup before each, which checks whether
its guards still hold (types, shapes, attributes, Python values), and the Python from the end of one region to the
lookup of the next. The time inside a region is not counted. Repeated blocks with several products each are not
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
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Intervals,
    Price,
    Steps,
    Trace,
    draw,
    duration,
    edits,
    intersect,
    subtract,
    total,
    union,
)

from ..shared._words import count, percent

CONFIRMED = "measured pair on a CPU: thirty layers compiled one by one against the whole model, which saved 22 and 24 %"

_LOOKUP, _REGION = "TorchDynamo Cache Lookup", "Torch-Compiled Region"
# The same compiled code twice in a window may be a model in two steps.
_REPEATED = 4
# Attention projects at least twice and a feed-forward part multiplies twice; layers multiply once.
_PRODUCTS_OF_A_BLOCK = 3
_PRODUCTS = (
    *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "mkl::_mkl_linear"),
    *("aten::_scaled_mm", "mkldnn::_linear_pointwise", "mkldnn::_convolution_pointwise"),
)
# Longer than that is not the way from one piece to the next but something that somebody wrote between them.
_LONGEST_NS = 200_000


def check(
    price: Price,
    *,
    min_share: float = 0.03,  # a model compiled as a whole spends 1 to 2 % of a small step on its one check
    min_pieces: float = 4.0,  # two or three regions are a model and its loss, or a model with one break
) -> Iterator[Finding]:
    trace, steps, scale, gpu = price.ops.trace, price.ops.steps, price.scale, price.on_device
    events = trace.events
    if not events.exactly(_LOOKUP).any():
        return
    mine = (events.thread == steps.main_thread) & (steps.step_of(events.start_ns) >= 0)
    lookups, regions = events.exactly(_LOOKUP) & mine, events.named(_REGION) & mine & events.of(Category.CPU_OP)
    pieces = float(regions.sum()) / steps.count
    if pieces < min_pieces or _are_blocks(price, np.flatnonzero(regions)):
        return
    spans = _around(trace, steps, lookups, regions)
    spent_us = steps.per_step_us(total(spans))
    if spent_us < min_share * steps.step_us:
        return
    how = "low: regions cannot be merged; high: the checks and the Python between them, without gains from fusion"
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
            f"Compiled code runs in {count(pieces)} regions a step: guard checks and the Python between regions take "
            f"{duration(scale.scaled(spent_us))} of each step ({percent(spent_us / steps.step_us)})."
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


def _are_blocks(price: Price, regions: npt.NDArray[np.int64]) -> bool:
    """Whether most regions run the same compiled code, with several products in each: a block of a model, no layer."""
    events, nesting = price.ops.events, price.ops.nesting
    names, times = np.unique(events.name[regions], return_counts=True)
    blocks = regions[np.isin(events.name[regions], names[times >= _REPEATED])]
    if 2 * len(blocks) < len(regions):
        return False
    products = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly(*_PRODUCTS))
    inside = np.zeros(len(events), np.bool_)
    inside[blocks] = True
    held = nesting.ancestor_of(products, inside)
    each = np.bincount(np.searchsorted(blocks, held[held >= 0]), minlength=len(blocks))
    return bool(np.median(each) >= _PRODUCTS_OF_A_BLOCK)


def _around(trace: Trace, steps: Steps, lookups: npt.NDArray[np.bool_], regions: npt.NDArray[np.bool_]) -> Intervals:
    """Look-ups outside of regions, and the ways from a region to the next look-up in which no op runs."""
    events = trace.events
    checks = union(events.start_ns[lookups], events.end_ns[lookups])
    inside = union(events.start_ns[regions], events.end_ns[regions])
    compiled = union(np.concatenate((checks[:, 0], inside[:, 0])), np.concatenate((checks[:, 1], inside[:, 1])))
    ways = np.column_stack((compiled[:-1, 1], compiled[1:, 0]))
    same = steps.step_of(ways[:, 0]) == steps.step_of(ways[:, 1])
    ways = ways[same & (ways[:, 1] - ways[:, 0] <= _LONGEST_NS) & (ways[:, 1] > ways[:, 0])]
    ops = events.of(Category.CPU_OP) & (events.thread == steps.main_thread) & ~lookups & ~regions
    busy = union(events.start_ns[ops], events.end_ns[ops])
    idle = subtract(ways, busy)
    both = np.concatenate((subtract(checks, inside), idle))
    return intersect(union(both[:, 0], both[:, 1]), steps.window)


_CHECK = Ev(_LOOKUP, launches="")
_PIECE = Ev("Torch-Compiled Region: 0/0", launches="")
_STEPS = """
    step   [1                                          ][2                                          ]
    cpu    [L][P ] [L][P ] [L][P ] [L][P ] [B      ]     [L][P ] [L][P ] [L][P ] [L][P ] [B      ]
    """

EXAMPLES = [
    Example(
        "four layers, each compiled by itself",
        draw(_STEPS, us=20, L=_CHECK, P=_PIECE, B=BACKWARD),
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
            K=GEMM,
        ),
        saves_us=None,
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
            B=BACKWARD,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "one model compiled as a whole",
        draw(
            "step [1              ][2              ]\ncpu  [L][R  ][B     ]  [L][R  ][B     ]",
            us=100,
            L=_CHECK,
            R=_PIECE,
            B=BACKWARD,
        ),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "no torch.compile",
        draw("step [1        ][2        ]\ncpu  [F  ][B   ][F  ][B   ]", us=1000, F=FORWARD, B=BACKWARD),
        saves_us=None,
    ),
]
