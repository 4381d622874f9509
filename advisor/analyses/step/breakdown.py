"""Where the step goes: an exact partition of the window."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.analyses.step.phases import Phases
from advisor.model import BreakdownItem
from advisor.trace.intervals import EMPTY, Intervals, intersect, merge, subtract, total

ON_HOST = ("input", "communication", "forward", "backward", "optimizer", "other_ops", "host")


class Breakdown(Struct, frozen=True, eq=False):
    """W split into parts; each instant belongs to the first part that applies. Shares sum to 1, µs to `Steps.step_us`.

    On a device, shares refer to the step without the profiler if that is known: the device's work takes as long, its
    idle time is shorter (`GpuBusy.share`).
    on_device   True: what the device does (compute, exposed_communication, exposed_copy) and why it idles
                (the causes of `GpuIdle`); False: the ids of ON_HOST (the loop)
    items       one per id, in that order, zero included
    intervals   id -> Intervals; disjoint, their union is W
    """

    items: tuple[BreakdownItem, ...]
    on_device: bool
    intervals: dict[str, Intervals]

    @property
    def talking(self) -> str:
        """The id of the part in which the step only communicates."""
        return "exposed_communication" if self.on_device else "communication"

    def us(self, part: str) -> float:
        """µs per profiled step; 0 for an id of the other kind."""
        return next((item.us for item in self.items if item.id == part), 0.0)

    def us_in(self, part: str, spans: Intervals) -> float:
        """µs per profiled step of the part within these spans (absolute ns), as in `us`."""
        whole = self.intervals.get(part, EMPTY)
        return self.us(part) * total(intersect(whole, spans)) / total(whole) if len(whole) else 0.0

    def share(self, part: str) -> float:
        """Share of W; 0 for an id of the other kind."""
        return next((item.share for item in self.items if item.id == part), 0.0)

    @classmethod
    def compute(cls, steps: Steps, busy: GpuBusy | None, idle: GpuIdle | None, phases: Phases) -> Breakdown:
        """The partition of W: by device if the trace has device work, else by the main thread's phases."""
        if busy is None or idle is None:
            on_device, parts = False, _of_host(phases)
        else:
            on_device, parts = True, _of_device(busy, idle)
        shares = {part: total(spans) / steps.window_ns for part, spans in parts.items()}
        if busy is not None and on_device:
            shares = {p: one * (busy.rest if p.startswith("idle_") else busy.longer) for p, one in shares.items()}
        items = tuple(BreakdownItem(part, share * steps.step_us, share) for part, share in shares.items())
        return cls(items, on_device, parts)


def _of_device(busy: GpuBusy, idle: GpuIdle) -> dict[str, Intervals]:
    talking = subtract(busy.talking, busy.computing)
    copying = subtract(subtract(busy.copy, busy.computing), busy.talking)
    # A memset is work of the device like a kernel; counted last, it takes nothing from the exposed parts.
    compute = subtract(busy.busy, merge(talking, copying))
    parts = {"compute": compute, "exposed_communication": talking, "exposed_copy": copying}
    return {**parts, **idle.intervals}


def _of_host(phases: Phases) -> dict[str, Intervals]:
    return {part: getattr(phases, part) for part in ON_HOST}
