"""Gradient accumulation reduces gradients in every backward pass.

## What it looks at
Backward passes through DistributedDataParallel, the size of what each of them reduces over the ranks, and when the
optimizer steps: if several passes contribute to one update, only the last of them has to reduce.

## Why it costs time
DistributedDataParallel reduces the gradients at the end of each backward pass, whether or not an update follows. With
gradients accumulated over eight passes the same bytes are sent eight times, and each time they are copied into buckets
and back, and the ranks wait for each other.

## How to fix it
Run all passes but the last of each update within `model.no_sync()`, including the forward pass. Lightning and
accelerate do so automatically if they handle the accumulation.

## When to leave it
Memory at its limit: without reducing, each rank keeps its own gradients until the update. Results differ only in
rounding, because the sums are computed in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    ALLREDUCE,
    GLOO,
    GRADIENT_STORE,
    NCCL,
    ZERO_GRAD,
    CallSites,
    Communication,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    HostCommunication,
    Intervals,
    Ints,
    LineCosts,
    NeedlessReductions,
    Price,
    Saving,
    Source,
    Steps,
    Trace,
    Treatment,
    draw,
    edits,
    loop_around,
    subtract,
    total,
)

from ..shared._side_effect_factors import SIDE_EFFECTS
from ..shared._words import count, each_step

CONFIRMED = "measured pair on a CPU: eight passes per update, two ranks, with and without no_sync()"

_HOW = "all reductions except that of the last pass of an update, and their copies of gradients"
_FORWARD = "DistributedDataParallel.forward"
# Gradients into their bucket, and out of it again: neither happens without a reduction.
_COPIES = ("reducer::mul_out", "reducer::copy_bucket_to_grad")


def check(
    price: Price,
    needless: NeedlessReductions,
    device_side: Communication | None,
    host_side: HostCommunication | None,
    costs: LineCosts | None,
    sites: CallSites | None,
    *,
    min_share: float = 0.03,  # of the step; it takes a few lines around the passes, not worth adding for less
) -> Iterator[Finding]:
    trace, steps, breakdown = price.ops.trace, price.ops.steps, price.breakdown
    part = breakdown.talking
    exposed_us = breakdown.us(part)
    if needless.share <= 0:
        return
    copies = np.flatnonzero(trace.events.named(*_COPIES) & (steps.step_of(trace.events.start_ns) >= 0))
    if breakdown.on_device:
        copied_us = price.spent_us(copies)
        low_us, high_us = exposed_us, min(exposed_us + copied_us, steps.step_us)
    else:
        low_us, high_us = _on_host(trace, steps, copies, exposed_us, host_side)
        # Bytes that are sent and copied on the host push the model's out of its caches.
        high_us = min(high_us * SIDE_EFFECTS, steps.step_us)
    if needless.share * high_us < min_share * steps.step_us:
        return
    yield Finding(
        message=(
            f"Gradients are accumulated over {count(needless.per_update)} passes per update, and each pass reduces "
            f"them over the ranks: for {each_step(price, exposed_us)} "
            f"nothing else happens."
        ),
        saving=_saving(price, needless, needless.share * low_us, needless.share * high_us),
        where=_where(costs, sites, part, _in_forward(price)),
        facts={
            "passes_per_update": needless.per_update,
            "exposed_us": exposed_us,
            "communication_us": device_side.us if device_side else host_side.us if host_side else None,
        },
        fix=_NO_SYNC,
        measured_us=price.scale.scaled(needless.share * exposed_us) if breakdown.on_device else None,
    )


def _on_host(
    trace: Trace, steps: Steps, copies: Ints, exposed_us: float, talk: HostCommunication | None
) -> tuple[float, float]:
    """What nothing hides, and all of it, with the copies of gradients: µs per step."""
    copying = trace.events.covered(copies)
    talking: Intervals = talk.spans if talk else copying[:0]
    beside_us = steps.of_window_us(total(subtract(copying, talking)))
    copied_us = steps.of_window_us(total(copying))
    return exposed_us + copied_us, steps.of_window_us(total(talking)) + beside_us


def _saving(price: Price, needless: NeedlessReductions, low_us: float, high_us: float) -> Saving:
    how, ends_us = _HOW, (min(low_us, high_us), max(low_us, high_us))
    if not price.breakdown.on_device:
        how += "; high, where ranks share a host: plus the time that they take from concurrent computation, and "
        return price.scale.saving(*ends_us, how + "what they evict from the caches")
    gone = [edits.remove(needless.rows), edits.remove(price.ops.launched(needless.rows))]
    return price.saving([], gone, (), how, model_us=ends_us, bound_us=ends_us[1])


def _in_forward(price: Price) -> Ints:
    """The outermost ops of the model's forward passes."""
    wrapped = price.ops.nesting.within(price.ops.events.named(_FORWARD))
    outer = price.ops.outermost
    return outer[wrapped[outer]]


def _where(costs: LineCosts | None, sites: CallSites | None, part: str, forward: Ints) -> tuple[Source, ...]:
    """Where `no_sync()` begins, and down to the line that waits for the other ranks.

    It holds a forward pass and its backward pass, and the loop knows which pass is the last: that is the line of the
    loop that runs a pass, or the one that calls the model where the loop runs both itself.
    docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync

    forward: ops of forward passes
    """
    line = max(costs.lines, key=lambda line: line.parts.get(part, 0.0), default=None) if costs else None
    if line is None or not line.parts.get(part):
        return ()
    called = sites.leading_to(line.source) if sites else ()
    around = loop_around(costs, line.source) if costs else None
    if around is not None and (around.file, around.function) == (line.source.file, line.source.function):
        called = ()  # the loop runs both itself, whoever calls its function
    model = sites.beside(int(forward[0]), line.source) if sites and not called and len(forward) else None
    return (*((model,) if model else ()), *reversed(called), line.source)


_NO_SYNC = Fix(
    "Use `no_sync()` in all passes of an update except the last",
    "numerics",
    "loss.backward()\nif (step + 1) % accumulation == 0:\n    optimizer.step()",
    "last = (step + 1) % accumulation == 0\nwith nullcontext() if last else model.no_sync():\n"
    "    loss = criterion(model(x), y)\n    loss.backward()\nif last:\n    optimizer.step()",
    Treatment("no_sync"),
)

_REDUCED = Ev(ALLREDUCE.name, launches="", dims=[[1_000_000]])
_STATISTICS = Ev(ALLREDUCE.name, launches="", dims=[[512]])
_WORDS: dict[str, Any] = {
    "W": Ev("DistributedDataParallel.forward", "user_annotation"),
    "S": Ev(GRADIENT_STORE, launches=""),
    "A": _REDUCED,
    "a": _STATISTICS,
    "C": Ev("torch.distributed.ddp.reducer::copy_bucket_to_grad", launches=""),
    "Z": ZERO_GRAD,
    "G": GLOO,
}
_SENT = "[W][F ][B ][S][A]     [C]"  # a pass that reduces its gradients, with the copies back
_KEPT = "[W][F ][B ][S]           "
_NORM = "[W][F ][B ][S][a]        "  # statistics of normalisation travel, gradients do not
_STEP, _CLEAR, _ON = "[O]", "[Z]", "   "


def _drawn(*passes: str, one_step: bool = False) -> Drawing:
    """Passes of 28 ms beside their reductions of 5 ms, each in a step of its own or all in one."""
    wide = len(passes[0])
    marks = [f"[{number:<{wide - 2}}]" for number in range(1, len(passes) + 1)]
    steps = f"[1{'':<{wide * len(passes) - 3}}]" if one_step else "".join(marks)
    talk = "".join(f"{'                 [G  ]':<{wide}}" if "[A]" in one else " " * wide for one in passes)
    lanes = f"step  {steps}\ncpu   {''.join(passes)}\ncpu 2 {talk}"
    return draw(lanes, us=1000, world_size=2, **{word: _WORDS[word] for word in _WORDS if f"[{word}" in lanes})


def _on_gpu(first: str) -> Drawing:
    return draw(
        f"""
        step   [1                         ][2                         ]
        cpu    [W][F ][B ][S]{first}          [W][F ][B ][S][A]       [O]
        gpu 7     [K       ]                   [K       ]
        gpu 20                [N     ]                      [N     ]
        """,
        us=1000,
        world_size=2,
        **{word: _WORDS[word] for word in "WS"},
        A=replace(_REDUCED, launches="collective"),
        N=NCCL,
    )


_COUNTED = {"world_size": 2, "steps": {"count": 80, "optimizer_steps": 20}}
_SKIPPED = {"world_size": 2, "steps": {"count": 80, "optimizer_steps": 76}}

EXAMPLES = [
    Example(
        "four passes for one update, and each reduces its gradients",
        _drawn(_SENT + _ON, _SENT + _ON, _SENT + _ON, _SENT + _STEP),
        facts=_COUNTED,
        saves_us=(5000, 6700),
        says=("accumulated over 4 passes",),
    ),
    Example(
        "four passes within one step of the loop, as some trainers fetch them",
        _drawn(_SENT + _ON, _SENT + _ON, _SENT + _ON, _SENT + _STEP, one_step=True),
        facts={"world_size": 2, "steps": {"count": 20, "optimizer_steps": 20}},
        saves_us=(20000, 26500),
        says=("accumulated over 4 passes",),
    ),
    Example(
        "two passes on a GPU",
        _on_gpu("[A]"),
        facts={"world_size": 2, "steps": {"count": 80, "optimizer_steps": 40}},
        saves_us=(3000, 4500),
        says=("accumulated over 2 passes",),
    ),
    Example(
        "the first three passes stand in no_sync()",
        _drawn(_KEPT + _ON, _KEPT + _ON, _KEPT + _ON, _SENT + _STEP),
        facts=_COUNTED,
        near_miss=True,
    ),
    Example(
        "within no_sync() only statistics of normalisation travel",
        _drawn(_NORM + _ON, _NORM + _ON, _NORM + _ON, _SENT + _STEP),
        facts=_COUNTED,
        near_miss=True,
    ),
    Example(
        "updates that were skipped now and then, because a gradient was not finite",
        _drawn(_SENT + _ON, _SENT + _ON, _SENT + _STEP, _SENT + _STEP),
        facts=_SKIPPED,
        near_miss=True,
    ),
    Example(
        "gradients that are cleared without an update are not added up",
        _drawn(_SENT + _CLEAR, _SENT + _CLEAR, _SENT + _CLEAR, _SENT + _STEP),
        near_miss=True,
    ),
    Example(
        "each pass is an update",
        _drawn(*[_SENT + _STEP] * 4),
        facts={"world_size": 2, "steps": {"count": 80, "optimizer_steps": 80}},
    ),
]
