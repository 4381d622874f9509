"""The accelerator that a trace shows, as far as the trace tells."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from msgspec import Struct

from advisor.analyses.base.launched import Launched
from advisor.analyses.base.lost_records import why_not_measured
from advisor.trace.events import Category, Trace
from advisor.trace.meta import DeviceProperties
from advisor.trace.numbers import numbered

Kind = Literal["cuda", "rocm", "xpu", "unknown", "foreign", "none"]


class Device(Struct, frozen=True):
    """The device whose work the trace contains.

    kind            cuda | rocm | xpu; unknown: device work of an unknown vendor; foreign: an accelerator whose work
                    cannot be distinguished from waiting; none: no device events
    name            product name, "" if not recorded
    capability      (major, minor) of an NVIDIA device, else None
    multiprocessors, memory_bytes   None if unknown
    count           distinct devices with work (not those that were merely visible)
    why             why device metrics are not measured, one sentence; "" if they are
    """

    kind: Kind
    name: str = ""
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    count: int = 0
    why: str = ""

    @property
    def measured(self) -> bool:
        """Whether the trace contains device work that can be analyzed."""
        return not self.why

    @classmethod
    def compute(cls, trace: Trace, launched: Launched) -> Device:
        """The device of a trace; never Missing."""
        events = trace.events
        work = trace.device_work
        if not work.any():
            return _without_work(trace)
        device = events.device[np.flatnonzero(work)]
        used, which = numbered(np.maximum(device, 0))
        count = len(numbered(device)[0])
        properties = _properties(trace, int(used[np.bincount(which).argmax()]))
        kind = _kind(trace, properties.name)
        capability = None
        if kind == "cuda" and properties.major is not None:
            capability = (properties.major, properties.minor or 0)
        why = why_not_measured(trace, launched)
        return cls(kind, properties.name, capability, properties.multiprocessors, properties.total_memory, count, why)


def _kind(trace: Trace, name: str) -> Kind:
    """By the names of the host calls, which each vendor's runtime has its own of; else by the product name."""
    events = trace.events
    calls = [events.names[i] for i in np.flatnonzero(events.names_of(Category.RUNTIME)).tolist()]
    for kind, pattern in _CALLS.items():
        if any(pattern.match(call) for call in calls):
            return kind
    for kind, pattern in _PRODUCTS.items():
        if pattern.search(name):
            return kind
    return "unknown"


_CALLS: dict[Kind, re.Pattern[str]] = {
    "rocm": re.compile("hip[A-Z]"),
    "cuda": re.compile("cu(da)?[A-Z]"),
    "xpu": re.compile("(ur|ze|pi)[A-Z]"),
}
_PRODUCTS: dict[Kind, re.Pattern[str]] = {
    "rocm": re.compile(r"\bAMD\b|Instinct|Radeon", re.IGNORECASE),
    "cuda": re.compile(r"NVIDIA|Tesla|GeForce|Quadro|\bRTX\b|\b[VAH]100\b", re.IGNORECASE),
    "xpu": re.compile(r"Intel", re.IGNORECASE),
}


def _properties(trace: Trace, device: int) -> DeviceProperties:
    """The entry of that device; ROCm numbers devices from elsewhere, so without one the entry that all share."""
    listed = trace.meta.devices
    if device < len(listed) and len(listed) > 0:
        return listed[device]
    return listed[0] if len({item.name for item in listed}) == 1 else DeviceProperties("")


def _without_work(trace: Trace) -> Device:
    events = trace.events
    names = sorted({item.name for item in trace.meta.devices if item.name})
    name = names[0] if len(names) == 1 else ""
    if events.of(Category.FOREIGN_DEVICE).any():
        called = ", ".join(one for one in (name, *trace.meta.accelerators) if one) or "of an unknown vendor"
        why = (
            f"the trace is of an accelerator ({called}) that is not supported yet: its events do not show when it is "
            "busy and when it waits"
        )
        return Device("foreign", name or ", ".join(trace.meta.accelerators), why=why)
    launches = int((events.of(Category.RUNTIME) & events.named("launchkernel")).sum())
    if launches:
        why = (
            f"the host launched {launches} kernels, but the trace has no device work: the profiler was not allowed "
            "to read the device; run `advisor doctor` to see why"
        )
        return Device(_kind(trace, name), name, why=why)
    return Device("none", why="the trace has no device work: only the CPU was recorded")
