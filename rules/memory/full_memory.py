"""Device memory is nearly full, or much of it is reserved but unused.

## What it looks at
The peaks of the memory that tensors occupy (allocated) and of the memory that PyTorch's caching allocator holds
(reserved), against the memory of the device; and what is known to occupy it: parameters, the optimizer's state, and the
rest, which is gradients, activations and buffers.

## Why it costs time
Before memory runs out, the allocator frees its cached memory and requests new memory from the driver, and each time
waits for the device. Also, a batch that could be larger, or blocks that are recomputed to save memory, cost time in
every step. Far more memory reserved than allocated is fragmentation: free blocks that fit no tensor.

## How to fix it
Fragmentation: `PYTORCH_ALLOC_CONF=expandable_segments:True` (`PYTORCH_CUDA_ALLOC_CONF` before PyTorch 2.9). A large
optimizer state: an optimizer that keeps it in 8 bits or factored, or sharded over the ranks. Activations: autocast,
activation checkpointing, a smaller batch with gradient accumulation.

## When to leave it
A device that is full and fast: memory that is used is not wasted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from advisor.api import Device, Example, Finding, Fix, Missing, PeakMemory, RankRecord, Trace, data_size, draw

from ..shared._allocator import EXPANDABLE, expandable
from ..shared._words import percent

# A state of a quarter of the peak is worth shrinking: 8 bits instead of 32 give back three quarters of it.
_LARGE_STATE = 0.25


def check(
    trace: Trace,
    memory: PeakMemory,
    device: Device,
    record: RankRecord | None,
    *,
    min_full: float = 0.92,  # of the device memory, reserved at the peak: the driver and libraries need some too
    min_waste: float = 2.0,  # reserved over allocated at the peak; rounding up of block sizes adds less than half
    min_wasted: float = 0.3,  # of the device's memory reserved: below, that ratio does not matter
) -> Iterator[Finding]:
    if not device.memory_bytes:
        raise Missing("the size of the device's memory is not known from this trace")
    kept = max(memory.reserved or 0.0, memory.bytes)
    full = kept / device.memory_bytes
    in_pieces = kept >= min_waste * memory.bytes and full >= min_wasted
    grows = expandable(record, trace.events)
    # Fragments in segments that may grow are no longer a matter of their sizes: nothing is known that shrinks them.
    if full < min_full and (not in_pieces or grows):
        return
    parts = _parts(memory, record)
    held = ", ".join(f"{name} {data_size(value)}" for name, value in parts.items())
    state = parts.get("the optimizer's state", 0.0)
    yield Finding(
        message=(
            f"At the peak {percent(full)} of the device's {data_size(device.memory_bytes)} are reserved, "
            f"{data_size(memory.bytes)} of it by tensors{': ' + held if held else ''}."
        ),
        # What the room is worth depends on what is done with it.
        saving=None,
        facts={"kept_bytes": kept, "used_bytes": memory.bytes, "device_bytes": device.memory_bytes} | _retries(record),
        fix=_fix(in_pieces and not grows, state >= _LARGE_STATE * memory.bytes, record),
        at_most="low",
    )


def _parts(memory: PeakMemory, record: RankRecord | None) -> dict[str, float]:
    """What is known to hold memory, in bytes; the rest of the peak where parameters and state are both known."""
    weights = (record.model or {}).get("parameter_bytes") if record else None
    states = [one.state_bytes for one in record.optimizers] if record else []
    if not weights or not states or None in states:
        return {}
    state = float(sum(one or 0 for one in states))
    # On a rank of a sharded model the parameters are counted whole: then the parts would be more than there is.
    rest = memory.bytes - weights - state
    if rest < 0:
        return {}
    known = {"parameters": float(weights), "the optimizer's state": state}
    return known | {"gradients, activations and buffers": rest}


def _retries(record: RankRecord | None) -> dict[str, Any]:
    known = record.memory if record else None
    return {"alloc_retries": known["alloc_retries"]} if known and "alloc_retries" in known else {}


def _fix(in_pieces: bool, large_state: bool, record: RankRecord | None) -> Fix:
    if in_pieces:
        return replace(EXPANDABLE, title="Set `expandable_segments:True` against fragmentation")
    if large_state:
        return _STATE
    return _CHECKPOINTS if record and record.settings.autocast else _ACTIVATIONS


_STATE = Fix(
    "Use an optimizer with a smaller state",
    "semantics",
    "optimizer = torch.optim.AdamW(model.parameters())",
    "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())  # or Adafactor; with several ranks ZeRO",
)
_CHECKPOINTS = Fix(
    "Use activation checkpointing to save memory",
    "numerics",
    "outputs = block(inputs)",
    "outputs = checkpoint(block, inputs, use_reentrant=False)  # torch.utils.checkpoint",
)
_ACTIVATIONS = Fix(
    "Use autocast or activation checkpointing to save memory",
    "numerics",
    "outputs = model(inputs)",
    "with torch.autocast('cuda', torch.bfloat16):\n    outputs = model(inputs)",
)


_STEPS = "step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]\ngpu 7  [K   ][K  ] [K   ][K  ]"


def _facts(used: float, kept: float, state: float = 8e9, weights: float = 4e9) -> dict[str, Any]:
    return {
        "memory": {"peak_allocated_bytes": int(used), "peak_reserved_bytes": int(kept), "alloc_retries": 0},
        "model": {"parameter_bytes": int(weights)},
        "optimizers": [{"name": "AdamW", "state_bytes": int(state)}],
    }


EXAMPLES = [
    Example(
        "half of a full device is the optimizer's state",
        draw(_STEPS, us=1000, device="A100"),
        facts=_facts(78e9, 80e9, state=40e9, weights=10e9),
        saves_us="unknown",
        says=("the optimizer's state 40 GB", "activations and buffers 28 GB"),
    ),
    Example(
        "memory in pieces",
        draw(_STEPS, us=1000, device="A100"),
        facts=_facts(20e9, 60e9),
        saves_us="unknown",
        says=("20 GB of it by tensors",),
    ),
    Example(
        "memory in pieces, though segments may grow",
        draw(_STEPS, us=1000, device="A100"),
        facts=_facts(20e9, 60e9) | {"environment": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}},
        near_miss=True,
    ),
    Example(
        "full of activations, under autocast",
        draw(_STEPS, us=1000, device="A100"),
        facts=_facts(78e9, 80e9, state=8e9, weights=4e9) | {"settings": {"autocast": True}},
        saves_us="unknown",
        fixes=("Use activation checkpointing to save memory",),
    ),
    Example(
        "twice as much kept as used, of a device that is nearly empty",
        draw(_STEPS, us=1000, device="A100"),
        facts=_facts(2e9, 5e9, state=4e8, weights=2e8),
        near_miss=True,
    ),
    Example("three quarters of the device", draw(_STEPS, us=1000, device="A100"), facts=_facts(60e9, 64e9)),
]
