"""Activation checkpointing recomputes forward ops in the backward pass.

## What it looks at
Forward ops inside the backward pass: what activation checkpointing (`torch.utils.checkpoint`) runs a second time
because it did not keep the results of the first. On a device, the time of the kernels that these ops launch.

## Why it costs time
Checkpointing trades time for memory: in full it adds a whole forward pass, up to a third of the step. If memory
would have sufficed, that time is wasted.

## How to fix it
Compare the peak of the memory with what the device has. Remove the checkpointing, or checkpoint only every second or
third block; each block that keeps its activations saves its share of the time.

## When to leave it
Models that do not fit otherwise, or whose batch would have to shrink. Not reported if the activations may be larger
than the whole memory of the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    AUTOGRAD_NODE,
    Category,
    Device,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Intervals,
    Ints,
    Nesting,
    PeakMemory,
    Price,
    RowMask,
    Settings,
    StepOps,
    Steps,
    Trace,
    constant,
    data_size,
    draw,
    edits,
    intersect,
    shapes,
    total,
    union,
)

from ..shared._examples import op
from ..shared._places import set_at
from ..shared._side_effect_factors import THREAD_SIDE_EFFECTS
from ..shared._words import each_step

CONFIRMED = "real trace: ResNet with checkpointed blocks on an MI300X; measured pair on a CPU"

# What a module's forward pass calls and no derivative does.
_LAYERS = (
    "aten::linear",
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::layer_norm",
    "aten::batch_norm",
    "aten::group_norm",
    "aten::rms_norm",
    "aten::embedding",
    "aten::scaled_dot_product_attention",
    "aten::dropout",
    "aten::relu",
    "aten::gelu",
    "aten::silu",
)
# Activations of less than this fit wherever a model trains, whatever else is not known about the machine.
_SMALL_BYTES = 1e9
# Above this share of its memory a device is full.
_MEMORY_USED = 0.8
# Least share of a second pass that goes with checkpointing.
_AT_LEAST = constant("share.recomputed").value


def check(
    price: Price,
    memory: PeakMemory | None,
    settings: Settings | None,
    *,
    min_share: float = 0.01,  # one argument or one call to remove; below 1 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    trace, steps, scale, device = price.ops.trace, price.ops.steps, price.scale, price.ops.device
    again = _recomputed(trace, price.ops.nesting) & price.ops.links.inside
    spans = _spans(trace, again, price.ops.nesting, steps)
    spent_us = _time_us(price.ops, again) if price.on_device else steps.per_step_us(total(spans))
    if spent_us < min_share * steps.step_us:
        return
    claims = price.claims("backward")
    kept = _kept_bytes(trace, again) / steps.count
    fits = 0 < kept <= _SMALL_BYTES or _fits(kept, memory, device)
    gone = edits.remove(np.flatnonzero(again)) if price.on_device else edits.remove_time(spans)
    how = "low: the recomputed ops without their overhead, nothing if memory does not suffice; high: the step "
    how += "without recomputation"
    least_us = _AT_LEAST * spent_us if fits else 0.0
    saving = price.saving([gone] if fits else [], [gone], claims, how, model_us=(least_us, spent_us))
    if fits and not price.on_device:
        deprofiled = price.deprofiled
        # Checkpointing also packs and unpacks what each op saves, which lies in no span of its own.
        low = deprofiled.share(deprofiled.stretch(spans, steps))
        high = deprofiled.share(deprofiled.in_part("backward", spent_us, python_us=spent_us))
        most = min(max(saving.high_us, high[1] * scale.step_us * THREAD_SIDE_EFFECTS), scale.step_us)
        saving = replace(saving, low_us=min(saving.low_us, low[0] * scale.step_us, most), high_us=most)
    if _is_needed(kept, memory, device) or saving.high_us < min_share * scale.step_us:
        return
    yield Finding(
        message=(
            f"The backward pass recomputes forward ops for {each_step(price, spent_us)}: activations are "
            f"checkpointed{_room(memory, device)}."
        ),
        saving=saving,
        where=set_at(settings, "checkpointing"),
        facts={
            "recomputed_us": spent_us,
            "ops": int(again.sum()) / steps.count,
            "peak_memory_bytes": memory.bytes if memory else None,
        },
        fix=Fix(
            "Remove checkpointing from some or all blocks",
            "exact",
            "x = checkpoint(block, x, use_reentrant=False)",
            "x = block(x)",
        ),
        claims=claims,
        # Without the peak of the memory nobody can say that it suffices.
        at_most="high" if memory is not None and device.memory_bytes is not None else "medium",
    )


def _recomputed(trace: Trace, nesting: Nesting) -> RowMask:
    """Ops that autograd recorded although they ran inside a backward op: those of a forward pass in the wrong place.

    Derivatives that are differentiated themselves (a gradient penalty) are recorded too, but they are products and
    sums: a node counts where one of its ops is such as only a forward pass calls.
    """
    events = trace.events
    nodes = events.named(AUTOGRAD_NODE)
    forward = events.of(Category.CPU_OP) & (events.sequence >= 0) & (events.forward_thread <= 0)
    forward &= ~events.named("Backward")

    def inside(rows: Ints) -> Ints:
        """The backward node around each row, -1 for the node itself and where none is."""
        around = nesting.ancestor_of(rows, nodes)
        return np.where(around == rows, -1, around)

    layers = np.unique(inside(np.flatnonzero(forward & events.named(*_LAYERS))))
    again = np.zeros(len(events), bool)
    if (layers >= 0).any():  # few scripts compute anything again, and the rest takes a while
        rows = np.flatnonzero(forward)
        again[rows[np.isin(inside(rows), layers[layers >= 0])]] = True
    return again


def _spans(trace: Trace, again: RowMask, nesting: Nesting, steps: Steps) -> Intervals:
    """From the start of each backward node that runs forward ops to the end of the last of them: Python included."""
    events = trace.events
    rows = np.flatnonzero(again)
    nodes, which = np.unique(nesting.ancestor_of(rows, events.named(AUTOGRAD_NODE)), return_inverse=True)
    ends = np.zeros(len(nodes), np.int64)
    np.maximum.at(ends, which, events.end_ns[rows])
    return intersect(union(events.start_ns[nodes], ends), steps.window)


def _kept_bytes(trace: Trace, again: RowMask) -> float:
    """What keeping the activations would take at most: the largest input of each op, as 4-byte numbers."""
    events = trace.events
    largest: dict[int, int] = {}
    for row in np.flatnonzero(again & (events.dims >= 0)).tolist():
        known = events.dims[row]
        if known not in largest:
            sizes = [math.prod(shape) for shape in shapes(events.dims_table[known]) if shape]
            largest[known] = max(sizes, default=0)
    return 4.0 * sum(largest[events.dims[row]] for row in np.flatnonzero(again & (events.dims >= 0)).tolist())


def _fits(kept: float, memory: PeakMemory | None, device: Device) -> bool:
    """Whether the device has memory for the activations on top of its present peak."""
    if memory is None or device.memory_bytes is None:
        return False
    return memory.bytes + kept <= _MEMORY_USED * device.memory_bytes


def _is_needed(kept: float, memory: PeakMemory | None, device: Device) -> bool:
    """Whether memory is the reason: the device is full, or, where its peak was not recorded, may be too small for them.

    Some blocks could still keep theirs, but how many nobody can say without the peak.
    """
    if device.memory_bytes is None:
        return False
    return kept > device.memory_bytes if memory is None else memory.bytes > _MEMORY_USED * device.memory_bytes


def _time_us(ops: StepOps, again: RowMask) -> float:
    """Device time of what these ops launched, µs per step."""
    work = np.flatnonzero(ops.trace.device_work & (ops.links.launch >= 0))
    return ops.us(work[ops.nesting.ancestor_of(ops.links.launch[work], again) >= 0])


def _room(memory: PeakMemory | None, device: Device) -> str:
    if memory is None or device.memory_bytes is None:
        return ", which is not needed if memory would suffice"
    return f", although the peak of {data_size(memory.bytes)} leaves room in {data_size(device.memory_bytes)}"


_EVALUATE = Ev(f"{AUTOGRAD_NODE}: AddmmBackward0", launches="")
_AGAIN = op("linear", number=7)
_BACKWARD_OP = Ev("aten::mm")


def _checkpointed(again: Ev) -> Drawing:
    return draw(
        """
        step   [1                             ][2                             ]
        cpu    [F   ]                          [F   ]
        cpu 2        [E            ]                [E            ]
        cpu 2        [R   ][B   ]                   [R   ][B   ]
        gpu 7   [K       ][K      ][K        ]  [K       ][K      ][K        ]
        """,
        us=1000,
        E=_EVALUATE,
        R=again,
        B=_BACKWARD_OP,
    )


_CHECKPOINTED = _checkpointed(_AGAIN)

EXAMPLES = [
    Example(
        "a checkpointed block",
        _CHECKPOINTED,
        saves_us=(0, 10000),
        says=("recomputes forward ops", "if memory would suffice"),
    ),
    Example(
        "activations that may not fit in the device at all",
        _checkpointed(op("linear", [1_000_000, 50_000], number=7)),
        near_miss=True,
    ),
    Example(
        "checkpointed, and memory is nearly full",
        _CHECKPOINTED,
        facts={"memory": {"peak_allocated_bytes": 78 << 30}},
        near_miss=True,
    ),
    Example(
        "a gradient penalty: derivatives that are recorded to be differentiated again",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F   ]                          [F   ]
            cpu 2        [E            ]                [E            ]
            cpu 2        [R   ][B   ]                   [R   ][B   ]
            """,
            us=1000,
            E=Ev(_EVALUATE.name),
            R=op("mm", number=7),
            B=_BACKWARD_OP,
        ),
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
            E=_EVALUATE,
            B=_BACKWARD_OP,
        ),
    ),
]
