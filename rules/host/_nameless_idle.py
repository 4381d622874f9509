"""Idle time of the device that no place of the code explains: what the trace says of it all the same."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Finding, GpuIdle, Price, Source, Steps, duration, intersect, total

from ..shared._words import percent

# What the trace says of Python that none of its rows names.
NAMELESS = ("", "Python")
# Calls that take pinned memory of the driver, or give it back.
_PINNED = ("HostAlloc", "HostMalloc", "MallocHost", "FreeHost", "HostFree", "HostRegister")


def what_of(where: Source | None, host: str) -> str:
    """For the message: the code that ran meanwhile."""
    if where is None:
        return f"`{host}`"
    place = f"{where.file.rpartition('/')[2]}:{where.line}"
    if host.startswith("aten::"):
        return f"`{host}` at {place}"
    if host not in (*NAMELESS, where.function):
        place = f"`{host}` in `{where.function}` at {place}" if where.function else f"`{host}` at {place}"
    elif where.function and not where.function.startswith("<"):
        place = f"`{where.function}` in {place}"
    return place if where.precision == "call" else f"{place} (the line is where the function starts)"


# One step among at least so many has more than so many times the idle time of all others together.
_SEVERAL, _FAR_MORE = 4, 10


def in_one_step(idle: GpuIdle, steps: Steps) -> Finding | None:
    """The finding where nearly all of the idle time lies in one of several steps: no step usually has it."""
    gaps = np.concatenate([idle.intervals["idle_host"], idle.intervals["idle_unknown"]])
    per_step = np.bincount(np.maximum(steps.step_of(gaps[:, 0]), 0), gaps[:, 1] - gaps[:, 0], steps.count)
    longest = int(np.argmax(per_step))
    others = per_step.sum() - per_step[longest]
    if steps.count < _SEVERAL or per_step[longest] < _FAR_MORE * others:
        return None
    idle_us = float(per_step[longest]) / 1e3
    return Finding(
        message=(
            f"The GPU is idle {duration(idle_us)} in one of the {steps.count} recorded steps, {steps.labels[longest]}, "
            "and hardly in the others: something held this step up, such as garbage collection, a checkpoint or an "
            "evaluation; capture with `advisor run` to see what."
        ),
        facts={"idle_us": idle_us, "step": steps.labels[longest]},
        claims=("idle_host", "idle_unknown"),
        at_most="medium",
    )


def rest(rest_us: float, idle: GpuIdle, price: Price) -> Finding:
    """The finding of so much idle time, µs of a recorded step, that no place of the code explains."""
    breakdown, scale, step_us = price.breakdown, price.scale, price.ops.steps.step_us
    unknown_us = breakdown.us("idle_unknown") - idle.nobodys_us
    idle_us = sum(item.us for item in breakdown.items if item.id.startswith("idle_"))
    largest = next(iter(idle.top("idle_unknown" if unknown_us > rest_us / 2 else "idle_host", 1)), None)
    seen = f"{duration(scale.scaled(rest_us))} of each step ({percent(rest_us / step_us)})"
    if unknown_us > rest_us / 2:
        why = "and the trace does not show why: it has no host events there"
    elif pinning := _pinning(idle, price):
        why = (
            f"while the loop's thread waits and another thread calls `{pinning}`: one that pins batches may hold "
            "Python's lock, and batches of one size find pinned memory that is kept"
        )
    elif largest and (largest.where or largest.host not in NAMELESS):
        why = f"while the host does many short pieces of work, the largest {what_of(largest.where, largest.host)}"
    else:
        why = "while the host runs Python that the trace does not name; capture with `advisor run` to see which lines"
    return Finding(
        message=f"The GPU is idle {seen} {why}.",
        where=(largest.where,) if largest and largest.where else (),
        facts={"idle_us": rest_us, "idle_unknown_us": unknown_us},
        # What the device idles for most is the diagnosis, though no fix is known; what nothing explains is none.
        measured_us=scale.scaled(rest_us - unknown_us) if rest_us - unknown_us > idle_us / 2 else None,
        claims=("idle_host", "idle_unknown"),
        at_most="medium",
    )


def has_a_name(idle: GpuIdle, price: Price) -> bool:
    """Whether the trace shows what most of the host's own work is."""
    largest = next(iter(idle.top("idle_host", 1)), None)
    return bool(_pinning(idle, price)) or (
        largest is not None and (bool(largest.where) or largest.host not in NAMELESS)
    )


def _pinning(idle: GpuIdle, price: Price) -> str:
    """The call in which another thread takes pinned memory for most of the time that the host idles the device."""
    events, spans = price.ops.events, idle.intervals["idle_host"]
    others = events.of(Category.RUNTIME) & events.named(*_PINNED) & (events.thread != price.ops.steps.main_thread)
    rows = np.flatnonzero(others)
    if 2 * total(intersect(events.covered(rows), spans)) <= total(spans) or not len(rows):
        return ""
    return events.text(int(rows[np.argmax(events.dur_ns[rows])]))
