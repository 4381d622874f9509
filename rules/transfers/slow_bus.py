"""Copies from pinned memory run far below the bandwidth of the bus.

## What it looks at
Copies of 1 MB and more between pinned memory and the device: their bytes over their time, against the peak of the
device's own link to the host, which is known by its name. Copies from pageable memory are reported by the rule
pageable-copies.

## Why it costs time
A large copy from pinned memory reaches 0.8 of the bus bandwidth and more. If it is far below, the device sits in a
slot of fewer lanes or of an older generation than it supports, the memory belongs to the host's other CPU socket, or
other devices use the same lanes at the same time.

## How to fix it
`nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv` while the run copies shows what the
slot provides; `nvidia-smi topo -m` shows which cores are near the device, and `numactl --cpunodebind=N --membind=N`
keeps the process and its memory there.

## When to leave it
Machines whose board provides no more, and copies that overlap with kernels. Gradients and weights of an optimizer that
works on the host are reported by the rule idle-gpu: they go with its work.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    SYNC,
    TO,
    Category,
    Device,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Missing,
    Price,
    constant,
    data_size,
    draw,
    edits,
    lookup,
)

from ..shared._host_updates import HostUpdate, offloaded
from ..shared._words import each_step, percent

# Smaller copies are mostly start and end.
_LARGE = 1 << 20
# Share of the bus that large copies from pinned memory reach.
_USUAL = constant("device.bus_share").value


def check(
    price: Price,
    device: Device,
    update: HostUpdate,
    *,
    max_rate: float = 0.4,  # of the bus bandwidth: a slot of the previous generation provides 0.4 of it (half of 0.8)
    min_share: float = 0.03,  # of the step: it needs a change of the machine, not worth it for less
) -> Iterator[Finding]:
    if not device.measured:
        raise Missing(device.why)
    hardware = lookup(device.name, device.capability)
    if hardware is None or hardware.bus_gbs is None:
        raise Missing(f"the bus bandwidth of {device.name or 'this device'} is not known")
    events, steps, scale = price.ops.events, price.ops.steps, price.scale
    pinned = events.of(Category.MEMCPY) & events.named("(Pinned -> Device)", "(Device -> Pinned)")
    rows = np.flatnonzero(pinned & (events.bytes >= _LARGE) & (events.dur_ns > 0) & price.ops.links.inside)
    rows = np.setdiff1d(rows, update.copies)  # reported with the update on the host, whose fix avoids them
    if not len(rows):
        return
    moved, spent_ns = float(events.bytes[rows].sum()), float(events.dur_ns[rows].sum())
    rate = moved / spent_ns / hardware.bus_gbs
    spent_us, factor = price.spent_us(rows), rate / _USUAL
    exposed_us = price.measured_us(("exposed_copy",))
    if rate >= max_rate or min(spent_us * (1 - factor), exposed_us) < min_share * steps.step_us:
        return
    how = f"high: copies at {percent(_USUAL)} of the bus bandwidth; low: nothing, if the board provides no more"
    saving = price.saving([], [edits.scale(rows, factor)], ("exposed_copy",), how)
    if saving.high_us < min_share * scale.step_us:
        return
    yield Finding(
        message=(
            f"Copies from pinned memory move {data_size(moved / steps.count)} a step at {moved / spent_ns:.3g} GB/s, "
            f"{percent(rate)} of the bandwidth of the link of the {hardware.model}, and take "
            f"{each_step(price, spent_us)}."
        ),
        saving=saving,
        facts={"copy_us": spent_us, "gb_per_second": moved / spent_ns, "link_gb_per_second": hardware.bus_gbs},
        fix=Fix(
            "Check the PCIe link, then pin the process and its memory to the device's NUMA node",
            "exact",
            "python train.py",
            "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv\n"
            "numactl --cpunodebind=0 --membind=0 python train.py  # the node that nvidia-smi topo -m names",
        ),
        claims=("exposed_copy",),
        at_most="medium",  # the slot or the board may give no more
    )


_STEPS = """
    step   [1                   ][2                   ]
    cpu    [T ][F ][S          ] [T ][F ][S          ]
    gpu 7   [C      ][K        ]  [C      ][K        ]
    """


def _drawn(bytes_: int, kind: str = "Pinned") -> Drawing:
    copy = Ev(f"Memcpy HtoD ({kind} -> Device)", "gpu_memcpy", bytes=bytes_)
    return draw(_STEPS, us=1000, device="A100", T=TO, S=SYNC, C=copy)


EXAMPLES = [
    # 9 ms at an A100's 31.5 GB/s are 284 MB, at 0.8 of it 227 MB.
    Example("a quarter of the bus", _drawn(71 << 20), saves_us=(0, 6500), says=("link of the A100",)),
    Example("half of the bus", _drawn(142 << 20), near_miss=True),
    Example("pageable memory, which another rule looks at", _drawn(71 << 20, "Pageable"), near_miss=True),
    Example("gradients and weights of an update on the host, which idle-gpu tells", offloaded(), near_miss=True),
    Example("small copies", _drawn(1 << 19), near_miss=True),
    Example("nearly all of the bus", _drawn(230 << 20)),
]
