"""Memory grows with every step.

## What it looks at
Memory of the process, or of the device if the tensors are there, read at both ends of the steps that were timed
without the profiler and at growing intervals after the profiled window; and losses of earlier steps that were still
held with their graphs when the window closed, or before it opened, with the variable that holds them: those of all
steps so far, or those of an epoch, in a meter that is read at its end. The memory that their graphs hold is read from
the tensors that their nodes saved.

## Why it costs time
`losses.append(loss)` or `total += loss` keeps not only a number but the graph of its step: all nodes, and everything
that the forward pass saved for the backward pass and that the backward pass has not freed. Every step then allocates
new memory from the system or the driver instead of reusing that of the previous step, and in the end the training runs
out of memory.

## How to fix it
`losses.append(loss.detach())`, `total += loss.detach()`; outputs that are kept for a metric are detached, too, and
moved to the host from time to time. `loss.item()` works as well, but makes the host wait for the GPU.

## When to leave it
A cache, a replay buffer or a dataset that fills up and then stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import Example, Finding, Fix, KeptGraphs, MemoryTrend, Missing, RankRecord, Source, data_size

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import place
from ..shared._words import count, plural

CONFIRMED = (
    "measured pair on a CPU: a score of each batch kept with its graph against detached; 0.8 MB a step against none"
)


def check(
    record: RankRecord,
    trend: MemoryTrend | None,
    *,
    min_bytes: float = 500_000,  # per step: 5 GB in ten thousand steps; less is bookkeeping
    min_total: float = 64e6,  # in total: allocators of the host keep tens of megabytes before they settle
    min_steps: int = 400,  # for host memory of unknown cause: a healthy script's allocator had settled after 320
) -> Iterator[Finding]:
    kept = record.kept_graphs
    if kept is None and trend is None:
        raise Missing("memory over the run was not recorded; capture the script with `advisor run` and let it continue")
    grows = trend is not None and trend.bytes_per_step > 0
    # A graph whose buffers the backward pass has given back is small: what does not grow does no harm. What a meter
    # keeps until an epoch ends grows in each epoch anew, which a look at memory now and then does not show.
    if kept is not None:
        whole = 2 * kept.steps >= kept.of_steps
        if (kept.held_bytes or 0.0) >= min_bytes or (whole and (grows or trend is None)):
            yield _kept(kept, trend if grows and whole else None)
            return
    if trend is None or not (trend.on_device or trend.steps >= min_steps):
        return
    if trend.bytes_per_step >= min_bytes and trend.grown_bytes >= min_total:
        yield Finding(
            message=f"{_growth(trend)}; no variable that keeps losses was found to hold it.",
            facts=_facts(trend),
            fix=_OUTPUTS,
            at_most="medium",
        )


def _kept(kept: KeptGraphs, trend: MemoryTrend | None) -> Finding:
    where = Source(kept.file, kept.line, kept.function) if kept.file else None
    name = f"`{kept.name}`" if kept.name else "a variable of the script"
    how = f"{name} sums losses with their graphs" if kept.summed else f"{name} holds losses with their graphs"
    held = f", each with {data_size(kept.held_bytes)} saved for a backward pass" if kept.held_bytes else ""
    grown = f" {_growth(trend)}." if trend else ""
    of_steps = plural(kept.steps or kept.losses, "step")
    return Finding(
        message=f"{how[0].upper()}{how[1:]}{place(where)}: {of_steps} of them so far{held}.{grown}",
        where=(where,) if where else (),
        facts={"losses": kept.losses, "held_bytes": kept.held_bytes, **(_facts(trend) if trend else {})},
        fix=_SUMMED if kept.summed else _LISTED,
        at_most="medium",
    )


def _growth(trend: MemoryTrend) -> str:
    what = "Device memory" if trend.on_device else "Memory of the process"
    return (
        f"{what} grows by {data_size(trend.bytes_per_step)} with every step, by {data_size(trend.grown_bytes)} in "
        f"{count(trend.steps)} steps to {data_size(trend.now_bytes)}"
    )


def _facts(trend: MemoryTrend) -> dict[str, Any]:
    return {"bytes_per_step": trend.bytes_per_step, "grown_bytes": trend.grown_bytes, "steps": trend.steps}


_LISTED = Fix("Detach the loss before keeping it", "exact", "losses.append(loss)", "losses.append(loss.detach())")
_SUMMED = Fix("Detach the loss before adding it", "exact", "total += loss", "total += loss.detach()")
_OUTPUTS = Fix(
    "Detach outputs that are kept, and move them to the host",
    "exact",
    "kept.append(outputs)",
    "kept.append(outputs.detach().cpu())  # every N steps, if the host should not wait",
)


def _memory(per_step: float, key: str = "resident_bytes", jump: float = 0.0) -> dict[str, Any]:
    steps = [("timing", 10), ("timed", 30), *(("after", 45 + (4 << number)) for number in range(5))]
    rows = [
        {"phase": phase, "step": step, key: int(4e8 + per_step * step + (jump if step > 60 else 0))}
        for phase, step in steps
    ]
    return {"vitals": {"memory": rows}}


_LIST = {"kept_graphs": {"losses": 40, "name": "losses", "file": "train.py", "line": 31, "function": "main"}}
_METER: dict[str, Any] = {
    "kept_graphs": {"losses": 80, "steps": 20, "of_steps": 100, "held_bytes": 5e6, "name": "meter.values"}
}

EXAMPLES = [
    Example(
        "a list of losses with their graphs",
        STEPS_ON_CPU,
        facts=_LIST | _memory(2e6),
        saves_us="unknown",
        says=("`losses` holds losses", "at train.py:31", "by 2 MB with every step"),
    ),
    Example(
        "a sum of losses in a script too short to tell by its memory",
        STEPS_ON_CPU,
        facts={"kept_graphs": {"losses": 40, "summed": True, "name": "total"}},
        saves_us="unknown",
        says=("`total` sums losses",),
    ),
    Example(
        "a meter that is read once an epoch, and what its graphs hold",
        STEPS_ON_CPU,
        facts=_METER | _memory(0.0),
        saves_us="unknown",
        says=("`meter.values` holds losses", "20 steps of them so far, each with 5 MB"),
    ),
    Example(
        "a meter of losses whose graphs the backward pass has emptied",
        STEPS_ON_CPU,
        facts={"kept_graphs": _METER["kept_graphs"] | {"held_bytes": 4e3}} | _memory(0.0),
        near_miss=True,
    ),
    Example(
        "the losses of the last steps beside memory that grows",
        STEPS_ON_CPU,
        facts={"kept_graphs": _METER["kept_graphs"] | {"held_bytes": None}} | _memory(2e5),
        near_miss=True,
    ),
    Example(
        "outputs that are kept on the device",
        STEPS_ON_CPU,
        facts=_memory(3e6, "allocated_bytes"),
        saves_us="unknown",
        says=("Device memory grows by 3 MB",),
    ),
    Example(
        "a process that still grows after a hundred steps, as allocators do",
        STEPS_ON_CPU,
        facts=_memory(2e6),
        near_miss=True,
    ),
    Example(
        "losses whose graphs the backward pass has emptied", STEPS_ON_CPU, facts=_LIST | _memory(0.0), near_miss=True
    ),
    Example("a cache that was filled once", STEPS_ON_CPU, facts=_memory(0.0, jump=3e8), near_miss=True),
    Example("a list of plain numbers", STEPS_ON_CPU, facts=_memory(1e3), near_miss=True),
    Example("memory that stays as it is", STEPS_ON_CPU, facts=_memory(0.0)),
    Example("a bare trace does not tell", STEPS_ON_CPU, near_miss=True, skipped="not captured by `advisor run`"),
]
