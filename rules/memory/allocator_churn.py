"""Device memory is allocated and freed by the driver within the steps.

## What it looks at
Calls of `cudaMalloc`, `cudaFree` and similar functions inside the profiled steps, after the warm-up. PyTorch's caching
allocator keeps freed memory for the next tensor, so a training in steady state makes no such calls.

## Why it costs time
Each call goes to the driver, and `cudaFree` waits until the device has finished all its work: the queue runs empty.
Causes are `torch.cuda.empty_cache()` in the loop, shapes that change from step to step, or a device so full that
PyTorch has to free cached memory before it can allocate more: then the calls that free lie inside the op that needs
memory, behind a call that could not allocate. Where no such call comes before them, `garbage_collection_threshold`
frees cached memory before each allocation, or `torch.cuda.set_per_process_memory_fraction` leaves no room
(c10/cuda/CUDACachingAllocator.cpp, `malloc`). An evaluation whose forward passes record a graph needs memory for all
that they compute, and where a list keeps their losses, for ever more of it. Expandable segments map and unmap memory
instead (`cuMemMap`, `cuMemUnmap`).

## How to fix it
Remove `empty_cache()`, or `garbage_collection_threshold` from the environment. Where an op frees memory before it can
allocate, free blocks may fit no request, of changing shapes above all: set
`PYTORCH_ALLOC_CONF=expandable_segments:True` in the environment (`PYTORCH_CUDA_ALLOC_CONF` before PyTorch 2.9), without
`max_split_size_mb`, which keeps large blocks from being used for other sizes, or pad to a few shapes. Without its cache
(`PYTORCH_NO_CUDA_MEMORY_CACHING`, which is for debugging) PyTorch has the driver allocate and free each tensor: unset
it. If segments that can grow do not help, the device is full: lower the peak by a smaller batch or checkpointing.

## When to leave it
Steps in which a new shape occurs for the first time, and two processes that alternate on one device.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    FORWARD,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    GpuBusy,
    Ints,
    Lines,
    Price,
    RankRecord,
    Treatment,
    draw,
    duration,
)

from ..shared._allocator import EXPANDABLE, UNMAPPED, allocator_calls, expandable
from ..shared._driver_calls import KEPT, DriverCalls, driver_calls
from ..shared._places import place
from ..shared._words import count, each_step, percent, plural


def check(
    price: Price,
    busy: GpuBusy,
    lines: Lines,
    record: RankRecord | None,
    *,
    min_share: float = 0.01,  # a call to remove, or one variable to set; below 1 % of the step the gain is noise
) -> Iterator[Finding]:
    events, steps = price.ops.events, price.ops.steps
    rows = np.flatnonzero(allocator_calls(events) & (steps.step_of(events.start_ns) >= 0))
    found = driver_calls(price, busy, lines, rows, min_share)
    if found is None:
        return
    freeing = rows[events.named("Free", *UNMAPPED)[rows]]
    frees = len(freeing)
    yield found.finding(
        f"The driver allocates device memory in {plural((len(rows) - frees) / steps.count, 'call')} a step and "
        f"frees it in {count(frees / steps.count)}{place(found.where)}: {_meanwhile(price, found)} that a training in "
        "steady state does not make.",
        {"allocations": (len(rows) - frees) / steps.count, "frees": frees / steps.count},
        _fix(price, freeing, rows[~np.isin(rows, freeing)], record),
    )


def _meanwhile(price: Price, found: DriverCalls) -> str:
    """What the calls cost: beside a device its idle time, as most of a `cudaFree` only waits for its work."""
    if found.idle_us is None:
        return f"{each_step(price, found.us)} in calls"
    share = percent(found.idle_us / price.scale.step_us)
    return f"the GPU is idle for {duration(found.idle_us)} of each step ({share}) during calls"


def _fix(price: Price, freeing: Ints, allocating: Ints, record: RankRecord | None) -> Fix:
    """What ends these calls: retries of a full device free and allocate as `empty_cache()` does.

    An allocation that fails frees what is cached within the op that asked for memory; `empty_cache()` is in no op.
    """
    if _never_cached(price, freeing, allocating, record):
        return _CACHED
    if _may_collect(record) and _collected(price, freeing, allocating):
        return _NO_THRESHOLD
    retried = len(freeing) > 0 and bool(np.median(price.ops.nesting.outer_op[freeing]) >= 0)
    if retried or (record and record.memory and record.memory.get("alloc_retries")):
        return _LOWER_PEAK if expandable(record, price.ops.events) else _GROWING
    if len(freeing):
        return Fix(
            "Remove `torch.cuda.empty_cache()`",
            "exact",
            "optimizer.step()\ntorch.cuda.empty_cache()",
            "optimizer.step()",
            Treatment("calls", {"names": ["torch.cuda.empty_cache"]}),
        )
    if _only_evaluates(price):
        return _NO_GRAPH
    return _FEW_SHAPES if expandable(record, price.ops.events) else EXPANDABLE


def _only_evaluates(price: Price) -> bool:
    """Whether each step is a forward pass whose graph autograd records, and none has a backward pass or an update.

    Most ops have a sequence number of their own then: autograd counts on for what it records alone.
    """
    events, steps, outer = price.ops.events, price.ops.steps, price.ops.outermost
    if events.named(AUTOGRAD_NODE, "Optimizer.step#").any() or steps.count < _FEWEST_STEPS:
        return False
    recorded = outer[events.sequence[outer] >= 0]
    numbers = len(np.unique(events.sequence[recorded]))
    return len(np.unique(steps.step_of(events.start_ns[recorded]))) == steps.count and 2 * numbers > len(outer)


def _never_cached(price: Price, freeing: Ints, allocating: Ints, record: RankRecord | None) -> bool:
    """Whether each tensor is allocated and freed by the driver, as without PyTorch's cache.

    `empty_cache()` and retries free all that is cached at once, and what is freed between two of them is cached again.
    """
    known = record.environment if record else None
    if known and not any(name in known for name in _NO_CACHE):
        return False
    events, links = price.ops.events, price.ops.links
    calls = links.launch[links.inside & (links.launch >= 0)]
    working = np.unique(price.ops.nesting.outer_op[calls])
    working = working[working >= 0]
    asking = np.isin(working, price.ops.nesting.outer_op[allocating])
    if not len(freeing) or not len(working) or 2 * asking.sum() < len(working):
        return False
    # Between two frees of a burst nothing is launched and nothing allocated.
    others = np.sort(events.start_ns[np.concatenate((calls, allocating))])
    bursts = len(np.unique(np.searchsorted(others, events.start_ns[freeing])))
    return len(freeing) <= _TENSORS_OF_AN_OP * bursts


def _may_collect(record: RankRecord | None) -> bool:
    """Whether a threshold may be set: where the environment was recorded it says so; retries are of a full device."""
    if record is None:
        return True
    known = record.environment or {}
    set_ = not known or any("garbage_collection_threshold" in value for value in known.values())
    return set_ and not (record.memory and record.memory.get("alloc_retries"))


def _collected(price: Price, freeing: Ints, allocating: Ints) -> bool:
    """Whether memory is freed within ops before they ask the driver for any, and most of these do so then."""
    events = price.ops.events
    around = price.ops.nesting.ancestor(events.of(Category.CPU_OP))
    ops, first = np.unique(around[freeing], return_index=True)
    ops, first = ops[ops >= 0], first[ops >= 0]
    asked = allocating[np.isin(around[allocating], ops)]
    begun = np.full(len(ops), -1)
    asking, earliest = np.unique(around[asked], return_index=True)
    begun[np.searchsorted(ops, asking)] = asked[earliest]
    return len(ops) > 0 and bool(np.mean(begun > freeing[first]) > 1 / 2)


_LOWER_PEAK = Fix(
    "Lower the peak: a smaller batch with gradient accumulation, or activation checkpointing",
    "numerics",
    "x = block(x)",
    "x = checkpoint(block, x, use_reentrant=False)  # torch.utils.checkpoint",
)
# What may not be split (`max_split_size_mb`) is given back where another size is asked for, as on a full device. A
# variable is set before the training is changed, as it tells which of both it is.
_GROWING = Fix(
    "Set `expandable_segments:True` without `max_split_size_mb`; if the device is full, lower the peak",
    "exact",
    "PYTORCH_ALLOC_CONF=max_split_size_mb:64 python train.py",
    "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py",
    Treatment("environment", {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
)
_NO_THRESHOLD = Fix(
    "Remove `garbage_collection_threshold`, or the process's limit on memory",
    "exact",
    "PYTORCH_ALLOC_CONF=garbage_collection_threshold:0.6 python train.py",
    "python train.py",
)
_NO_CACHE = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
# What an op no longer needs when it ends: its inputs, and what it computed on the way. The cache holds hundreds.
_TENSORS_OF_AN_OP = 4
# A backward pass of the first steps might still follow later.
_FEWEST_STEPS = 3
_NO_GRAPH = Fix(
    "Evaluate under `torch.no_grad()`: autograd keeps what each of these forward passes computes",
    "exact",
    "for images, labels in val_loader:\n    losses.append(criterion(model(images), labels))",
    "with torch.no_grad():\n    for images, labels in val_loader:\n"
    "        losses.append(criterion(model(images), labels))",
)
_CACHED = Fix(
    "Leave PyTorch its cache of device memory: unset `PYTORCH_NO_CUDA_MEMORY_CACHING`",
    "exact",
    "PYTORCH_NO_CUDA_MEMORY_CACHING=1 python train.py",
    "python train.py",
)
_FEW_SHAPES = Fix(
    "Pad to a few shapes, so that cached blocks fit",
    "numerics",
    "batch = pad_sequence(samples, batch_first=True)",
    "batch = pad_sequence(samples, batch_first=True)\n"
    "batch = F.pad(batch, (0, -batch.shape[1] % 64))  # with a mask for what is added",
)

_MALLOC = Ev("cudaMalloc", "cuda_runtime")
_FREE = Ev("cudaFree", "cuda_runtime")
_MAP, _UNMAP = Ev("cuMemMap", "cuda_driver"), Ev("cuMemUnmap", "cuda_driver")
_NEEDY = Ev("aten::empty", launches="")
_RETRIED = """
    step   [1                         ][2                         ]
    cpu    [F  ][G        ][F ]         [F  ][G        ][F ]
    cpu         [M][Z ][M]                   [M][Z ][M]
    gpu 7   [K   ]          [K  ]        [K   ]          [K  ]
    """
_COLLECTED = """
    step   [1                         ][2                         ]
    cpu    [F  ][G        ][F ]         [F  ][G        ][F ]
    cpu         [Z   ][M ]                   [Z   ][M ]
    gpu 7   [K   ]          [K  ]        [K   ]          [K  ]
    """
_UNCACHED = """
    step   [1                         ][2                         ]
    cpu    [F     ][F     ][Z][F     ][Z][F     ][F     ][Z][F   ]
    cpu     [M ]    [M ]       [M ]       [M ]    [M ]       [M]
    gpu 7       [K ]    [K ]       [K ]       [K ]    [K ]       [K]
    """
_STEPS = """
    step   [1                         ][2                         ]
    cpu    [F  ][A   ][G  ][Z      ]    [F  ][A   ][G  ][Z      ]
    gpu 7   [K   ]     [K  ]             [K   ]     [K  ]
    """


EXAMPLES = [
    Example(
        "the cache is emptied in each step",
        draw(_STEPS, us=100, G=FORWARD, A=_MALLOC, Z=_FREE),
        saves_us=(0, 1600),
        says=("allocates device memory in 1 call a step and frees it in 1",),
    ),
    Example(
        "memory is allocated in each step, where expandable segments are set already",
        draw(_STEPS, us=100, G=FORWARD, A=_MALLOC, Z=_MALLOC),
        facts={"environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
        saves_us=(0, 1600),
        says=("in 2 calls a step",),
        fixes=("Pad to a few shapes",),
    ),
    Example(
        "a device that is full: an op that needs memory frees first",
        draw(_RETRIED, us=100, G=_NEEDY, M=_MALLOC, Z=_FREE),
        saves_us=(0, 1600),
        says=("allocates device memory in 2 calls a step and frees it in 1",),
        fixes=("without `max_split_size_mb`; if the device is full",),
    ),
    Example(
        "the same where segments can grow already",
        draw(_RETRIED, us=100, G=_NEEDY, M=_MALLOC, Z=_FREE),
        facts={"environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
        saves_us=(0, 1600),
        fixes=("Lower the peak",),
    ),
    Example(
        "an op frees cached memory before it asks for any: a threshold for garbage collection",
        draw(_COLLECTED, us=100, G=_NEEDY, M=_MALLOC, Z=_FREE),
        saves_us=(0, 1600),
        says=("allocates device memory in 1 call a step and frees it in 1",),
        fixes=("garbage_collection_threshold",),
    ),
    Example(
        "the same where the environment has no such threshold",
        draw(_COLLECTED, us=100, G=_NEEDY, M=_MALLOC, Z=_FREE),
        facts={"environment": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}},
        saves_us=(0, 1600),
        fixes=("without `max_split_size_mb`",),
    ),
    Example(
        "each op allocates, and what it needs no more is freed at once: the allocator has no cache",
        draw(_UNCACHED, us=100, M=_MALLOC, Z=_FREE),
        saves_us=(0, 1600),
        fixes=("PYTORCH_NO_CUDA_MEMORY_CACHING",),
    ),
    Example(
        "expandable segments are unmapped in each step",
        draw(_STEPS, us=100, G=FORWARD, A=_MAP, Z=_UNMAP),
        saves_us=(0, 1600),
        says=("allocates device memory in 1 call a step and frees it in 1",),
        fixes=("Remove `torch.cuda.empty_cache()`",),
    ),
    Example(
        "pinned memory of the host",
        draw(_STEPS, us=100, G=FORWARD, A=Ev("cudaHostAlloc", "cuda_runtime"), Z=Ev("cudaFreeHost", "cuda_runtime")),
        near_miss=True,
    ),
    Example(
        "an allocation beside a device that has enough to do",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [F  ][A]                     [F  ][A]
            gpu 7   [K                          ][K                          ]
            """,
            us=100,
            A=_MALLOC,
        ),
        near_miss=True,
    ),
    KEPT,
]
