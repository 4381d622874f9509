"""Backward pass computes the forward pass again.

## What it looks at
Forward ops inside the backward pass: what activation checkpointing (`torch.utils.checkpoint`) runs a second time
because it did not keep the results of the first. On a device the time of the kernels that these ops launch.

## Why it costs time
Checkpointing buys memory with time: in full it adds a whole forward pass, up to a third of the step. Where memory
would have sufficed, the price is paid for nothing.

## How to fix it
Compare the peak of the memory with what the device has. Drop the checkpointing, or checkpoint only every second or
third block; each block that keeps its activations gives back its share of the time.

## When to leave it
Models that do not fit otherwise, or whose batch would have to shrink.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    FORWARD,
    GEMM,
    Breakdown,
    Category,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    Links,
    Nesting,
    PeakMemory,
    Replay,
    Scale,
    Steps,
    Trace,
    draw,
    edits,
    replayed_or,
)

from ._words import percent, size, time

CONFIRMED = "real trace: ResNet with checkpointed blocks on an MI300X"


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    device: Device,
    nesting: Nesting,
    links: Links,
    memory: PeakMemory | None,
    replay: Replay | None,
    *,
    min_share: float = 0.01,  # one argument or one call to leave out; below 1 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    again = _recomputed(trace, nesting) & (links.step >= 0)
    spent_us = _time_us(trace, steps, again, nesting, links, breakdown.on_device)
    if spent_us < min_share * steps.step_us:
        return
    claims = ("compute",) if breakdown.on_device else ("backward",)
    bound_us = sum(breakdown.us(part) for part in claims)
    modelled = scale.saving(
        0.0, min(spent_us, bound_us), "nothing where memory does not suffice; at most the second pass"
    )
    gone = edits.remove(np.flatnonzero(again))
    how = "low: memory does not suffice; high: the step replayed without the second pass"
    saving = replayed_or(modelled, replay, [], [gone], how, scale.scaled(bound_us))
    full = memory is not None and device.memory_bytes is not None and memory.bytes > 0.8 * device.memory_bytes
    if full or saving.high_us < min_share * scale.step_us:
        return
    yield Finding(
        message=(
            f"The backward pass computes forward ops again for {time(scale.scaled(spent_us))} of each step "
            f"({percent(spent_us / steps.step_us)}): activations are checkpointed{_room(memory, device)}."
        ),
        saving=saving,
        facts={
            "recomputed_us": spent_us,
            "ops": int(again.sum()) / steps.count,
            "peak_memory_bytes": memory.bytes if memory else None,
        },
        fix=Fix(
            "Keep the activations, of some blocks or of all",
            "exact",
            "x = checkpoint(block, x, use_reentrant=False)",
            "x = block(x)",
        ),
        claims=claims,
        # Without the peak of the memory nobody can say that it suffices.
        at_most="high" if memory is not None and device.memory_bytes is not None else "medium",
    )


def _recomputed(trace: Trace, nesting: Nesting) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Ops that autograd recorded although they ran inside a backward op: those of a forward pass in the wrong place."""
    events = trace.events
    backward = events.named("autograd::engine::evaluate_function")
    inside = nesting.ancestor(backward)
    own = inside != np.arange(len(events))
    forward = events.of(Category.CPU_OP) & (events.sequence >= 0) & (events.forward_thread <= 0)
    return np.asarray(forward & (inside >= 0) & own & ~events.named("Backward"), bool)


def _time_us(
    trace: Trace,
    steps: Steps,
    again: np.ndarray[tuple[int], np.dtype[np.bool_]],
    nesting: Nesting,
    links: Links,
    on_device: bool,
) -> float:
    """Device time of what these ops launched; without a device the time of the ops themselves, µs per step."""
    events = trace.events
    if not on_device:
        return steps.per_step_us(float(nesting.self_ns[again].sum()))
    launch = links.launch
    above = nesting.ancestor(again)
    mine = trace.device_work & (launch >= 0) & (above[np.maximum(launch, 0)] >= 0)
    return steps.per_step_us(float(events.dur_ns[mine].sum()))


def _room(memory: PeakMemory | None, device: Device) -> str:
    if memory is None or device.memory_bytes is None:
        return ", which costs time for nothing if memory would suffice"
    return f", though the peak of {size(memory.bytes)} leaves room in {size(device.memory_bytes)}"


_EVALUATE = Ev("autograd::engine::evaluate_function: AddmmBackward0", launches="")
_AGAIN = Ev("aten::addmm", args={"Sequence number": 7, "Fwd thread id": 0})
_BACKWARD_OP = Ev("aten::mm")

EXAMPLES = [
    Example(
        "a checkpointed block",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F   ]                          [F   ]
            cpu 2        [E            ]                [E            ]
            cpu 2        [R   ][B   ]                   [R   ][B   ]
            gpu 7   [K       ][K      ][K        ]  [K       ][K      ][K        ]
            """,
            us=1000,
            F=FORWARD,
            E=_EVALUATE,
            R=_AGAIN,
            B=_BACKWARD_OP,
            K=GEMM,
        ),
        saves_us=(0, 10000),
        says=("forward ops again", "if memory would suffice"),
    ),
    Example(
        "checkpointed, and memory is nearly full",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F   ]                          [F   ]
            cpu 2        [E            ]                [E            ]
            cpu 2        [R   ][B   ]                   [R   ][B   ]
            gpu 7   [K       ][K      ][K        ]  [K       ][K      ][K        ]
            """,
            us=1000,
            F=FORWARD,
            E=_EVALUATE,
            R=_AGAIN,
            B=_BACKWARD_OP,
            K=GEMM,
        ),
        facts={"memory": {"peak_allocated_bytes": 78 << 30}},
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "an ordinary backward pass",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F   ]                          [F   ]
            cpu 2        [E            ]                [E            ]
            cpu 2              [B   ]                         [B   ]
            gpu 7   [K           ][K             ]  [K           ][K             ]
            """,
            us=1000,
            F=FORWARD,
            E=_EVALUATE,
            B=_BACKWARD_OP,
            K=GEMM,
        ),
        saves_us=None,
    ),
]
