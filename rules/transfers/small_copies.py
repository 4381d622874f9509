"""Many small tensors are copied to the device one by one.

## What it looks at
Copies of at most 64 KB from host to device within the steps, by the user's line: how many each step makes, and the
host's time to launch them.

## Why it costs time
A small copy has the overhead of a large one: about ten microseconds of the host for the call, and a few on the device,
regardless of its size. A batch that is a dictionary of twenty tensors, or a list of targets for each image, pays that
twenty times, and the host launches no kernels during that time.

## How to fix it
Combine them into one tensor before the copy, in the `collate_fn`, with `torch.cat` or `torch.stack`, and split
it on the device, where views cost nothing.

## When to leave it
Where the device has enough to do and the host runs ahead: the copies then overlap with other work, and the replay shows
it.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    Lines,
    Price,
    Source,
    StepOps,
    Trace,
    data_size,
    draw,
    duration,
    edits,
    subtract,
    total,
    union,
)

from ..shared._places import place
from ..shared._words import count, percent

# Copies up to 64 KB take about as long as their launch, whatever their size.
_SMALL_BYTES = 64 << 10
# Ops that copy because the script says so; indexing and the like copy what they need by themselves.
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda")


def check(
    price: Price,
    lines: Lines,
    *,
    min_copies: int = 8,  # per step at one line; inputs, targets, masks and lengths of an ordinary batch are fewer
    min_share: float = 0.02,  # a change of the collate function; below 2 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    trace, steps, links, scale = price.ops.trace, price.ops.steps, price.ops.links, price.scale
    for where, outer in _groups(price.ops, lines).items():
        if len(outer) < min_copies * steps.count:
            continue
        # One of them stays in each step.
        step = links.step[outer]
        gone = outer[np.concatenate(([False], step[1:] == step[:-1]))]
        spent_us = steps.per_step_us(_host_ns(trace, gone))
        bound_us = min(spent_us, price.measured_us(_PARTS))
        how = "low: the device has enough other work; high: the step with one copy instead of these"
        saving = price.saving([], [edits.remove(gone)], _PARTS, how, model_us=(0.0, bound_us), bound_us=bound_us)
        if saving.high_us < min_share * scale.step_us:
            continue
        yield Finding(
            message=(
                f"{count(len(outer) / steps.count)} copies of at most {data_size(_SMALL_BYTES)} to the GPU in each step"
                f"{place(where)}: launching them takes the host {duration(scale.scaled(spent_us))} "
                f"({percent(spent_us / steps.step_us)})."
            ),
            saving=saving,
            where=(where,) if where else (),
            facts={"copies": len(outer) / steps.count, "host_us": spent_us},
            fix=_FIX,
            claims=_PARTS,
        )


_PARTS = ("exposed_copy", "idle_launch")
_FIX = Fix(
    "Combine them into one tensor, copy it, and split it on the device",
    "exact",
    "batch = {name: x.to(device) for name, x in batch.items()}",
    "packed = torch.stack(list(batch.values())).to(device, non_blocking=True)  # of one shape and dtype\n"
    "batch = dict(zip(batch, packed.unbind()))",
)


def _host_ns(trace: Trace, rows: npt.NDArray[np.int64]) -> int:
    """Host time of these ops without the waits in them: those are for the device, however few copies there are."""
    events = trace.events
    waits = events.of(Category.RUNTIME) & events.named("Synchronize")
    ops = union(events.start_ns[rows], events.end_ns[rows])
    return total(subtract(ops, union(events.start_ns[waits], events.end_ns[waits])))


def _groups(recorded: StepOps, lines: Lines) -> dict[Source | None, npt.NDArray[np.int64]]:
    """Outermost ops on the loop's thread that copy little to the device, in order, by line."""
    events, links, nesting = recorded.events, recorded.links, recorded.nesting
    small = events.of(Category.MEMCPY) & events.named("HtoD") & (events.bytes >= 0) & (events.bytes <= _SMALL_BYTES)
    rows = np.flatnonzero(small & links.inside & (links.launch >= 0))
    call = links.launch[rows]
    outer = np.where(nesting.outer_op[call] >= 0, nesting.outer_op[call], call)
    outer = np.unique(outer[events.thread[call] == recorded.steps.main_thread])
    outer = outer[events.exactly(*_COPIES)[outer]]
    groups: dict[Source | None, list[int]] = {}
    for row in outer.tolist():
        groups.setdefault(lines.where_op(row), []).append(row)
    return {where: np.array(found, np.int64) for where, found in groups.items()}


_STEPS = """
    step   [1                             ][2                             ]
    cpu    [T        ][F  ][B   ]          [T        ][F  ][B   ]
    gpu 7  [C        ]  [K   ][K    ]      [C        ]  [K   ][K    ]
    """
_TO = Ev("aten::to", launches="memcpy", times=20, fill=0.9)
_SMALL = Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=4096, times=20, fill=0.2)
_LARGE = Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=8 << 20, times=20, fill=0.2)
_ONE = Ev("aten::to", launches="memcpy", times=3, fill=0.9)
_FEW = Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=4096, times=3, fill=0.2)

_INDEX = Ev("aten::index", launches="memcpy", times=20, fill=0.9)

EXAMPLES = [
    Example(
        "twenty tensors of four kilobytes",
        draw(_STEPS, us=100, T=_TO, C=_SMALL, F=FORWARD, B=BACKWARD, K=GEMM),
        saves_us=(0, 1000),
        says=("20 copies",),
    ),
    Example(
        "indexing with lists of the host, which copies them by itself",
        draw(_STEPS, us=100, T=_INDEX, C=_SMALL, F=FORWARD, B=BACKWARD, K=GEMM),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "twenty large tensors",
        draw(_STEPS, us=100, T=_TO, C=_LARGE, F=FORWARD, B=BACKWARD, K=GEMM),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "inputs, targets and a mask",
        draw(_STEPS, us=100, T=_ONE, C=_FEW, F=FORWARD, B=BACKWARD, K=GEMM),
        saves_us=None,
    ),
]
