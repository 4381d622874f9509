"""The host waits for the GPU inside the training loop.

## What it looks at
Calls that block the host until the device has caught up: `.item()`, `float(loss)`, `if tensor:`, `print(tensor)`,
`.cpu()`, `torch.cuda.synchronize()`. What counts is the time for which the device is then idle, from the moment its
queue is empty to the next launch, and the idle time later in the step that the host, being ahead, would have hidden;
the waiting itself mostly overlaps with work of the device and costs nothing.

## Why it costs time
Without synchronizations the host runs ahead and keeps the device's queue full. A synchronization lets the queue run
empty, and the device is idle until the host has launched again.

## How to fix it
Keep the value on the device: `total += loss.detach()`, and `.item()` once every N steps. Compare and branch with tensor
ops (`torch.where`). Where a mask selects (`losses[mask].mean()`), the host waits for the number of what is selected: a
sum over all elements, divided by the number of those selected, is the same mean without it. Remove calls of
`synchronize()` that no measurement needs. Where a value must be read, read that of the previous step. Results that the
host works on behind each step, such as priorities from which it draws the next batch, go to pinned memory by
`copy_(..., non_blocking=True)` with an event, and are read when the next step is launched: then the host works while
the device does. An op that waits for the size of its own result (suppression of boxes, sparse convolutions, decoding)
cannot be read later: call it for the whole batch, or use its result in several layers. A value that is only checked
needs no reader: distributions check their arguments unless `validate_args=False`, `torch._assert_async` checks on the
device. `GradScaler` reads whether gradients are finite, unless the optimizer is one of `torch.optim` with `fused=True`
(Adam, AdamW, SGD, Adagrad); with another optimizer, autocast in bf16 needs no `GradScaler` where the device computes in
it. Anomaly detection reads it of each gradient: turn it off once the invalid one is found.

Sizes that `all_to_all_single` needs on the host (tokens of experts, rows of sharded tables) cannot be read later:
exchange a fixed capacity, or copy them to pinned memory while work runs that does not need them, as torchrec's
`TrainPipelineSparseDist` does. Experts after the exchange need no sizes on the host: `torch._grouped_mm` takes offsets
on the device.

## When to leave it
Synchronizations after the last launch of a step that the next step would wait for anyway. Synchronizations that a
measurement needs. Waits for gradients and weights of an optimizer that works on the host are reported by idle-gpu.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from advisor.api import (
    D2H_PAGEABLE,
    ITEM,
    NEXT_WORKERS,
    SYNC,
    Ev,
    Example,
    Finding,
    Fix,
    OptimizerWork,
    Price,
    Source,
    SyncSite,
    Training,
    draw,
    duration,
)

from ...shared._host_updates import offloaded
from ...shared._words import count, each_step
from ._checked_values import CHECKED, OF_CHECKS, UNCHECKED, checked, without_checks
from ._exchange_sizes import FIX, NEEDED, SIZES, sizes_of_exchange
from ._reads_of_torch import READ_BY_TORCH, UNSCALED, read_by_torch, to_be_left
from ._sync_fixes import SITES, fix_of, of_the_op, to_device
from ._waits import Wait, Waits


def check(
    waits: Waits,
    price: Price,
    training: Training,
    work: OptimizerWork | None,
    *,
    min_share: float = 0.02,  # one line to move; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    for wait in waits.told:
        if wait.saving.high_us >= min_share * price.scale.step_us and not to_be_left(wait.site, price, work):
            fix = _fix(wait.site, price, work, trains=training.seen)
            yield _finding(without_checks(wait, price) if fix in OF_CHECKS else wait, price, fix)


def _fix(site: SyncSite, price: Price, work: OptimizerWork | None, *, trains: bool) -> Fix | None:
    fix = to_device(site, price) or read_by_torch(site, price, work)
    needed = FIX if sizes_of_exchange(site, price) else None
    return fix or needed or checked(site, price) or fix_of(site, price, trains=trains)


def _finding(wait: Wait, price: Price, fix: Fix | None) -> Finding:
    scale = price.scale
    site, saving, later = wait.site, wait.saving, wait.later
    # Else the device idles in gaps further on.
    at_once = 2 * scale.scaled(site.then_idle_us) > saving.high_us
    place = f" at {_place(site.where)}" if site.where else ""
    times = "once" if site.calls == 1 else f"{count(site.calls)} times"
    needed = sizes_of_exchange(site, price)
    ops, verb = f"`{_short(site.op)}`", "makes"
    if wait.others:
        first = ", ".join((ops, *(f"`{_short(op)}`" for op in wait.others[:-1])))
        ops, verb = f"{first} and `{_short(wait.others[-1])}`", "make"
    waits = f"{ops}{place} {verb} the host wait for the GPU {times} a step"
    then = (
        f", {duration(scale.scaled(site.us))} in all, and launch nothing meanwhile: what it does next leaves the GPU "
        f"idle{_idle_time(site, price) if at_once else ''}."
        if later
        else f"; the GPU is then idle for {each_step(price, site.idle_after_us)}."
    )
    if wait.checks_us:
        then += f" The device spends {each_step(price, wait.checks_us)} on what is read."
    return Finding(
        message=waits + then + (NEEDED if needed else _ARGUMENTS if fix is UNCHECKED else ""),
        # Where an op needs the value itself, only fewer calls of it give that time back.
        saving=replace(saving, low_us=0.0) if needed or of_the_op(site, price) else saving,
        where=wait.places or ((site.where,) if site.where else ()),
        facts={
            "syncs_per_step": site.calls,
            "blocked_us": site.us,
            "gives_back_us": wait.cost_us,
            **({"idle_us": site.then_idle_us} if later and at_once else {}),
            "idle_after_us": site.idle_after_us,
            "op": site.op,
        },
        fix=fix,
        claims=wait.claims,
        # The format of a whole training is no small change.
        at_most="low" if fix is UNSCALED else "medium" if needed else "high",
    )


_ARGUMENTS = " It reads whether arguments of distributions are valid."


def _idle_time(site: SyncSite, price: Price) -> str:
    return f" for {each_step(price, site.then_idle_us)}"


def _place(where: Source) -> str:
    return f"{where.file.rpartition('/')[2]}:{where.line}"


def _short(op: str) -> str:
    return {"aten::item": ".item()", "aten::_local_scalar_dense": ".item()"}.get(op, op.removeprefix("aten::"))


_STEPS = """
    step   [1                       ][2                       ]
    cpu    [F ][I     ][B      ]     [F ][I     ][B      ]
    gpu 7   [K      ]    [K      ]    [K      ]    [K      ]
    gpu 7           [C]                       [C]
    """
EXAMPLES = [
    *SIZES,
    *SITES,
    *READ_BY_TORCH,
    *CHECKED,
    Example(
        "loss.item() in the middle of the step",
        draw(_STEPS, us=1000, I=ITEM, C=D2H_PAGEABLE),
        saves_us=(0, 6000),
        says=("`.item()`", "once a step"),
    ),
    Example(
        "losses are selected by a mask",
        draw(
            _STEPS.replace("[B ", "[M "),
            us=1000,
            I=Ev("aten::index", launches="memcpy", blocks=True),
            C=D2H_PAGEABLE,
            M=Ev("aten::mean"),
        ),
        saves_us=(0, 6000),
        fixes=("torch.where(mask, losses, 0).sum() / mask.sum()",),
    ),
    Example(
        "samples are selected by a mask",
        draw(_STEPS, us=1000, I=Ev("aten::index", launches="memcpy", blocks=True), C=D2H_PAGEABLE),
        saves_us=(0, 6000),
        fixes=("Compute all rows, and choose with `torch.where`",),
    ),
    Example(
        "values are written where a mask is true",
        draw(_STEPS, us=1000, I=Ev("aten::index_put_", launches="memcpy", blocks=True), C=D2H_PAGEABLE),
        saves_us=(0, 6000),
        fixes=("torch.where(mask[:, None], change(x), out)",),
    ),
    Example(
        "torch.cuda.synchronize() between forward and backward",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [F ][S    ]   [B     ]    [F ][S    ]   [B     ]
            gpu 7   [K      ]     [K     ]    [K      ]     [K     ]
            """,
            us=1000,
            S=SYNC,
        ),
        saves_us=(0, 9000),
        says=("cudaDeviceSynchronize",),
    ),
    Example(
        "a sync whose wait is the device's own work",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [F ][B  ][I                ][F ][B  ][I                ]
            gpu 7    [K      ][K              ]  [K      ][K             ]
            gpu 7                              [C]                        [C]
            """,
            us=1000,
            I=ITEM,
            C=D2H_PAGEABLE,
        ),
        near_miss=True,
    ),
    Example("waits for an update on the host, which idle-gpu tells", offloaded(), near_miss=True),
    Example(
        "no sync",
        draw(
            """
            step   [1                 ][2                 ]
            cpu    [D][F  ][B  ]       [D][F  ][B  ]
            gpu 7     [K      ][K      ]  [K      ][K     ]
            """,
            us=1000,
            D=NEXT_WORKERS,
        ),
    ),
    Example(
        "`.item()` on a CPU waits for nothing",
        draw(
            """
            step   [1           ][2           ]
            cpu    [F  ][B  ][I ][F  ][B  ][I ]
            """,
            us=1000,
            I=ITEM,
        ),
        near_miss=True,
        skipped="no calls into a device runtime",
    ),
]
