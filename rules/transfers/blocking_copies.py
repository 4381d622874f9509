"""The host waits while data is copied.

## What it looks at
Large copies between pinned memory and the device, or from the device to the host, that block the host in the
call until the data has moved, and during which no kernel runs. (Copies from pageable memory are reported by the rule
pageable-copies; a few bytes read back, as `.item()` does, by sync-in-loop.)

## Why it costs time
`.to(device)` and `.cpu()` wait for the copy by default. The host cannot launch the next kernels meanwhile, and the
device does nothing but copy.

## How to fix it
From pinned memory, `.to(device, non_blocking=True)` returns at once; the stream keeps copy and kernels in order.
Fetch and copy the next batch before the current one is used. Outputs: keep them on the device and copy them once
per epoch.

## When to leave it
Copies whose data the host needs immediately. With `non_blocking=True` from the device to the host, the host
must wait for an event before it reads the result.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    H2D_PINNED,
    TO,
    TO_BLOCKING,
    Copies,
    CopySite,
    Ev,
    Example,
    Finding,
    Fix,
    Price,
    Saving,
    Scale,
    Steps,
    draw,
    edits,
)

from ..shared._words import count, each_step, size, time

# Copies up to 64 KB take about as long as the launch itself; waiting for them is a matter of syncs, not of copying.
_SMALL_BYTES = 64 << 10


def check(
    copies: Copies,
    steps: Steps,
    scale: Scale,
    price: Price,
    *,
    min_share: float = 0.01,  # one word in one line; below 1 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    bound_us = min(copies.exposed_us, price.measured_us(("exposed_copy",)))
    for site in copies.blocking:
        # A copy takes as long without the profiler, as does the host's wait for it.
        cost_us = min(site.us * price.ops.longer, site.blocked_us * price.ops.longer, bound_us)
        if _ours(site) and cost_us >= min_share * steps.step_us:
            saving = _saving(site, cost_us, price)
            if saving.high_us >= min_share * scale.step_us:
                yield _finding(site, cost_us, saving, price)


def _saving(site: CopySite, cost_us: float, price: Price) -> Saving:
    if not site.to_device:
        how = "low: the host needs this data now; high: it stays on the device, and the step has no copy"
        gone = [edits.remove(np.array(site.ops_rows, int))]
        return price.saving([], gone, ("exposed_copy",), how, model_us=(0.0, cost_us), bound_us=cost_us)
    how = "low: the next kernel needs this data; high: the copy overlaps with other work"
    beside = [edits.unsync(np.array(site.ops_rows, int)), edits.move(np.array(site.rows, int))]
    return price.saving([], beside, ("exposed_copy",), how, model_us=(0.0, cost_us), bound_us=cost_us)


def _ours(site: CopySite) -> bool:
    large = site.bytes is None or site.bytes / max(site.calls, 1.0) > _SMALL_BYTES
    # Where the trace does not say whether memory was pinned, pinning may be what is missing: not this rule's advice.
    return large and (site.pinned is True or not site.to_device)


def _finding(site: CopySite, cost_us: float, saving: Saving, price: Price) -> Finding:
    blocked_us = site.blocked_us * price.ops.longer
    way = "to" if site.to_device else "from"
    amount = f" of {size(site.bytes)}" if site.bytes is not None else ""
    number = "A copy" if site.calls == 1 else f"{count(site.calls)} copies"
    return Finding(
        message=(
            f"{number}{amount} {way} the GPU a step (`{site.op}`): the host waits "
            f"{time(price.scale.scaled(blocked_us))}, and for {each_step(price, cost_us)} "
            "no kernel runs meanwhile."
        ),
        saving=saving,
        where=(site.where,) if site.where else (),
        facts={"copies": site.calls, "bytes": site.bytes, "blocked_us": blocked_us, "exposed_us": cost_us},
        fix=_fix(site.to_device),
        claims=("exposed_copy",),
    )


def _fix(to_device: bool) -> Fix:
    if to_device:
        return Fix("Pass `non_blocking=True`", "exact", "x = x.to(device)", "x = x.to(device, non_blocking=True)")
    return Fix(
        "Keep results on the device and copy them once",
        "exact",
        "outputs.append(out.cpu())",
        "outputs.append(out.detach())\n# after the epoch:\noutputs = torch.cat(outputs).cpu()",
    )


_STEPS = """
    step   [1                       ][2                       ]
    cpu    [T    ][F ][B  ]          [T    ][F ][B  ]
    gpu 7  [C   ]  [K    ][K    ]    [C   ]  [K    ][K    ]
    """

EXAMPLES = [
    Example(
        "pinned, but without non_blocking=True",
        draw(_STEPS, us=1000, T=TO_BLOCKING, C=H2D_PINNED, F=FORWARD, B=BACKWARD, K=GEMM),
        saves_us=(0, 6000),
        says=("`aten::to`", "to the GPU"),
    ),
    Example(
        "outputs are moved to the host in every step",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [F ][B  ][T             ] [F ][B  ][T             ]
            gpu 7   [K   ][K    ]             [K   ][K    ]
            gpu 7                [C     ]                  [C     ]
            """,
            us=1000,
            T=TO_BLOCKING,
            C=Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=32 << 20),
            F=FORWARD,
            B=BACKWARD,
            K=GEMM,
        ),
        saves_us=(0, 8000),
        says=("from the GPU",),
    ),
    Example(
        "the same copy with non_blocking=True",
        draw(_STEPS, us=1000, T=TO, C=H2D_PINNED, F=FORWARD, B=BACKWARD, K=GEMM),
        saves_us=None,
    ),
    Example(
        "a blocking copy of a few bytes",
        draw(
            _STEPS,
            us=1000,
            T=TO_BLOCKING,
            C=Ev(H2D_PINNED.name, "gpu_memcpy", bytes=4096),
            F=FORWARD,
            B=BACKWARD,
            K=GEMM,
        ),
        saves_us=None,
        near_miss=True,
    ),
]
