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

Copies from pageable memory wait, each for itself: combined and pinned, none does. Other rules leave them to this one.

Copies between which the host launches kernels are of no batch, if each step has the same ones: tables that lie on the
host, such as the schedule of a diffusion model in NumPy. Each waits until the device has run what was launched before
it. Move them to the device once: `register_buffer` in a module, or `.to(device)` before the loop.

## When to leave it
Where the device has enough to do and the host runs ahead: the copies then overlap with other work, and the replay shows
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    Trace,
    data_size,
    draw,
    duration,
    edits,
    subtract,
    total,
)

from ..shared._places import place
from ..shared._small_copies import SEVERAL, SMALL_BYTES, small_copies
from ..shared._words import count, percent
from ._sent_weights import come_by_layer


def check(
    price: Price,
    lines: Lines,
    *,
    min_copies: int = SEVERAL,  # per step at one line: an ordinary batch has fewer tensors
    min_share: float = 0.02,  # a change of the collate function; below 2 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    trace, steps, links, scale = price.ops.trace, price.ops.steps, price.ops.links, price.scale
    sent = np.flatnonzero(trace.events.of(Category.MEMCPY) & links.inside & trace.events.named("HtoD (Pageable"))
    if come_by_layer(price, sent):
        return  # biases and norms among them: weights, which pageable-copies tells
    for where, outer in small_copies(price.ops, lines).items():
        if len(outer) < min_copies * steps.count:
            continue
        apart = _are_apart(price, outer)
        # Of a batch one of them stays in each step.
        step = links.step[outer]
        gone = outer if apart else outer[np.concatenate(([False], step[1:] == step[:-1]))]
        waits = _waits_for_each(price, gone)
        spent_us = steps.per_step_us(_host_ns(trace, gone, waits))
        # The queue is empty after each that waits for kernels: what is launched next comes late, too.
        bound_us = price.measured_us(_PARTS) if apart else min(spent_us, price.measured_us(_PARTS))
        kept = "without" if apart else "with one copy instead of"
        how = f"low: the device has enough other work; high: the step {kept} these"
        saving = price.saving([], [edits.remove(gone)], _PARTS, how, model_us=(0.0, bound_us), bound_us=bound_us)
        if saving.high_us < min_share * scale.step_us:
            continue
        yield Finding(
            message=(
                f"{count(len(outer) / steps.count)} copies of at most {data_size(SMALL_BYTES)} to the GPU in each step"
                f"{place(where)}: launching them{' and waiting for each' if waits else ''} takes the host "
                f"{duration(scale.scaled(spent_us))} ({percent(spent_us / steps.step_us)})."
            ),
            saving=saving,
            where=(where,) if where else (),
            facts={"copies": len(outer) / steps.count, "host_us": spent_us},
            fix=_KEPT if apart else _PINNED if waits else _FIX,
            claims=_PARTS,
        )


_PARTS = ("exposed_copy", "idle_launch")
_KEPT = Fix(
    "Keep on the device what does not change between steps",
    "exact",
    "torch.from_numpy(self.alphas_cumprod).to(device)[t]",
    'self.register_buffer("alphas_cumprod", torch.from_numpy(alphas_cumprod))  # once, then model.to(device)\n'
    "self.alphas_cumprod[t]",
)
_FIX = Fix(
    "Combine them into one tensor, copy it, and split it on the device",
    "exact",
    "batch = {name: x.to(device) for name, x in batch.items()}",
    "packed = torch.stack(list(batch.values())).to(device, non_blocking=True)  # of one shape and dtype\n"
    "batch = dict(zip(batch, packed.unbind()))",
)
_PINNED = replace(
    _FIX,
    title="Combine them into one tensor, copy it from pinned memory, and split it on the device",
    before="batch = {name: x.to(device) for name, x in batch.items()}  # of collate_fn: a dict of tensors",
    after="packed = batch.to(device, non_blocking=True)  # of collate_fn: torch.stack(...), with pin_memory=True\n"
    "batch = dict(zip(names, packed.unbind()))",
)


def _are_apart(price: Price, rows: Ints) -> bool:
    """Whether each step has the same copies, and between most of them and the next ones kernels are launched."""
    ops, events = price.ops, price.ops.events
    copies = ops.launched(rows)
    of_step = [events.bytes[copies[ops.links.step[copies] == step]].tolist() for step in range(ops.steps.count)]
    if len(of_step) < 2 or any(one != of_step[0] for one in of_step):
        return False
    kernels = np.flatnonzero(events.of(Category.KERNEL) & ops.links.inside & (ops.links.launch >= 0))
    launched_ns = np.sort(events.start_ns[ops.links.launch[kernels]])
    before = np.searchsorted(launched_ns, events.start_ns[rows])
    same = np.diff(ops.links.step[rows]) == 0
    return 2 * int((np.diff(before) > 0)[same].sum()) > int(same.sum())


def _waits_for_each(price: Price, rows: Ints) -> bool:
    """Whether the host waits for most of these copies themselves: from pageable memory, one after another."""
    copies = price.ops.launched(rows)
    pageable = price.ops.events.named("Pageable")[copies]
    return len(copies) > 0 and 2 * int(pageable.sum()) > len(copies)


def _host_ns(trace: Trace, rows: Ints, waits_for_each: bool) -> int:
    """Host time of these ops; without the waits in them where these are for the device, of however few copies."""
    events = trace.events
    ops = events.covered(rows)
    if waits_for_each:  # in the queue behind kernels it is the device that is waited for
        return total(subtract(ops, events.covered(events.of(Category.KERNEL))))
    waits = events.of(Category.RUNTIME) & events.named("Synchronize")
    return total(subtract(ops, events.covered(waits)))


_STEPS = """
    step   [1                             ][2                             ]
    cpu    [T        ][F  ][B   ]          [T        ][F  ][B   ]
    gpu 7  [C        ]  [K   ][K    ]      [C        ]  [K   ][K    ]
    """
_TABLES = f"""
    step   [1{" " * 70}][2{" " * 70}]
    cpu    {"[T  ][F ]" * 8}{" " * 2}{"[T  ][F ]" * 8}
    gpu 7  {"  [C] [K]" * 8}{" " * 2}{"  [C] [K]" * 8}
    """
_TO = Ev("aten::to", launches="memcpy", times=20, fill=0.9)
_SMALL = Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=4096, times=20, fill=0.2)
_LARGE = Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=8 << 20, times=20, fill=0.2)
_ONE = Ev("aten::to", launches="memcpy", times=3, fill=0.9)
_FEW = Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=4096, times=3, fill=0.2)

_INDEX = Ev("aten::index", launches="memcpy", times=20, fill=0.9)

_PAGEABLE = replace(_SMALL, name="Memcpy HtoD (Pageable -> Device)")

EXAMPLES = [
    Example(
        "twenty tensors from pageable memory, each of which the host waits for",
        draw(_STEPS, us=100, T=replace(_TO, blocks=True), C=_PAGEABLE),
        saves_us=(0, 1000),
        says=("20 copies", "waiting for each"),
        fixes=("pinned",),
    ),
    Example(
        "twenty tensors of four kilobytes",
        draw(_STEPS, us=100, T=_TO, C=_SMALL),
        saves_us=(0, 1000),
        says=("20 copies",),
    ),
    Example(
        "tables in NumPy, copied wherever they are needed",
        draw(_TABLES, us=100, T=replace(_TO, blocks=True, times=1), C=replace(_PAGEABLE, times=1)),
        saves_us=(0, 5000),
        says=("8 copies", "waiting for each"),
        fixes=("Keep on the device",),
    ),
    Example(
        "indexing with lists of the host, which copies them by itself",
        draw(_STEPS, us=100, T=_INDEX, C=_SMALL),
        near_miss=True,
    ),
    Example("twenty large tensors", draw(_STEPS, us=100, T=_TO, C=_LARGE), near_miss=True),
    Example("inputs, targets and a mask", draw(_STEPS, us=100, T=_ONE, C=_FEW)),
]
