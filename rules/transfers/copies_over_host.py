"""Data is copied from GPU to GPU through the host.

## What it looks at
Copies of one size that go from a device to the host and to another device right afterwards, in one process.

## Why it costs time
The data crosses the bus twice, and the second copy waits for the first. A direct copy between devices uses the links
between them, or crosses the bus once.

## How to fix it
`tensor.to("cuda:1")` directly from the other device, without `.cpu()` or `.numpy()` in between. If the script already
does that, the devices have no peer access: see `nvidia-smi topo -m`, and whether the system's IOMMU or access control
on the bus prevents it.

## When to leave it
Virtual machines and boards that do not allow peer access. Data that the host needs anyway.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from advisor.api import (
    D2H_PAGEABLE,
    H2D_PAGEABLE,
    TO,
    Category,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Price,
    data_size,
    draw,
)

from ..shared._words import each_step, often

# Losses and flags go over the host on purpose.
_LEAST_BYTES = 64 << 10
# The second copy follows the first: longer after it, something else happens to be as large.
_SOON_NS = 5_000_000


def check(
    price: Price,
    *,
    min_share: float = 0.01,  # a call to remove; below 1 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    events, steps, scale = price.ops.events, price.ops.steps, price.scale
    copies = events.of(Category.MEMCPY) & price.ops.links.inside & (events.bytes >= _LEAST_BYTES) & (events.device >= 0)
    up, down = (np.flatnonzero(copies & events.named(way)) for way in ("HtoD", "DtoH"))
    if not len(up) or not len(down) or len(np.unique(events.device[np.concatenate((up, down))])) < 2:
        return
    pairs = _pairs(events, down.tolist(), up.tolist())
    spent_us = price.spent_us(np.array([second for _, second in pairs], np.int64))
    if not pairs or spent_us < min_share * steps.step_us:
        return
    many = len(pairs) / steps.count
    moved = sum(int(events.bytes[second]) for _, second in pairs) / steps.count
    yield Finding(
        message=(
            f"{data_size(moved / many)} are copied {often(many)} from one GPU to the host and from there to another: "
            f"the second copy takes {each_step(price, spent_us)}."
        ),
        saving=scale.saving(0.0, spent_us, "low: the copies overlap with other work; high: one of the two is gone"),
        facts={"pairs": many, "bytes": moved, "second_us": spent_us},
        fix=Fix(
            "Copy directly from device to device",
            "exact",
            'hidden = hidden.cpu().to("cuda:1")',
            'hidden = hidden.to("cuda:1", non_blocking=True)',
        ),
    )


def _pairs(events: Events, down: list[int], up: list[int]) -> list[tuple[int, int]]:
    """(copy to the host, copy from it) of one size, the second to another device and soon after the first."""
    waiting: dict[int, list[int]] = defaultdict(list)
    for row in down:
        waiting[int(events.bytes[row])].append(row)
    found = []
    for row in up:
        first = waiting[int(events.bytes[row])]
        while first and events.end_ns[first[0]] < events.start_ns[row] - _SOON_NS:
            first.pop(0)
        if first and events.end_ns[first[0]] <= events.start_ns[row] and events.device[first[0]] != events.device[row]:
            found.append((first.pop(0), row))
    return found


def _drawn(second: int, bytes_: int = 8 << 20) -> Drawing:
    down = Ev(D2H_PAGEABLE.name, D2H_PAGEABLE.cat, bytes=8 << 20)
    up = Ev(H2D_PAGEABLE.name, H2D_PAGEABLE.cat, bytes=bytes_, args={"device": second})
    return draw(
        """
        step   [1                             ][2                             ]
        cpu    [F ][T  ][T  ]                  [F ][T  ][T  ]
        gpu 7   [K ]                            [K ]
        gpu 8       [D ]                            [D ]
        gpu 9            [U  ]                           [U  ]
        """,
        us=200,
        T=TO,
        D=down,
        U=up,
    )


EXAMPLES = [
    Example(
        "activations by way of the host to the second device",
        _drawn(1),
        saves_us=(0, 1000),
        says=("8.39 MB", "once a step"),
    ),
    Example("to the host and back to the same device", _drawn(0), near_miss=True),
    Example("another size goes to the second device", _drawn(1, 2 << 20), near_miss=True),
    Example(
        "copies from device to device",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [F ][T  ]                       [F ][T  ]
            gpu 7   [K ]                            [K ]
            gpu 9       [U  ]                           [U  ]
            """,
            us=200,
            T=TO,
            U=Ev("Memcpy PtoP (Device -> Device)", "gpu_memcpy", bytes=8 << 20),
        ),
    ),
]
