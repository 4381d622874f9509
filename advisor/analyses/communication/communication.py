"""Collectives and point-to-point communication on the device."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import communication_rows, is_communication
from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.links import Links
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.ops import by_name
from advisor.model import OpRow
from advisor.trace.events import Category, Collective, Events, Mask, Trace
from advisor.trace.intervals import Intervals, subtract, total

__all__ = ["Communication", "is_communication"]


class Communication(Struct, frozen=True, eq=False):
    """Communication kernels inside the window W, and the part that no other kernel hides.

    rows           which events are communication kernels (all of the trace)
    union          union of them in the window W
    exposed        union minus the union of all other kernels: the device only communicates (late ranks included)
    share, exposed_share   of |W|, without profiler overhead if that is known (`GpuBusy.share`)
    us, exposed_us         µs per step
    calls          communication kernels per step
    bytes          payload per step; None if the trace does not contain message sizes
    largest        the costliest kernels by name, per step, most expensive first
    """

    rows: Mask
    union: Intervals
    exposed: Intervals
    share: float
    exposed_share: float
    us: float
    exposed_us: float
    calls: float
    bytes: float | None
    largest: tuple[OpRow, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, busy: GpuBusy, links: Links) -> Communication:
        """Communication of this rank; zero where there is none. Missing without device work."""
        events = trace.events
        rows = events.of(Category.KERNEL) & communication_rows(events)
        exposed = subtract(busy.talking, busy.computing)
        counted = rows & links.inside
        return cls(
            rows=rows,
            union=busy.talking,
            exposed=exposed,
            share=total(busy.talking) / steps.window_ns * busy.longer,
            exposed_share=total(exposed) / steps.window_ns * busy.longer,
            us=steps.of_window_us(total(busy.talking)) * busy.longer,
            exposed_us=steps.of_window_us(total(exposed)) * busy.longer,
            calls=float(counted.sum()) / steps.count,
            bytes=payload(events, counted, steps.count),
            largest=by_name(events, counted, steps, busy.busy_ns, n=5),
        )


# Sizes of the element types as NCCL's rows spell them (c10 names, and NCCL's own short ones).
_ELEMENT_BYTES = {
    **dict.fromkeys(("double", "long", "int64", "long int", "float64", "uint64"), 8),
    **dict.fromkeys(("float", "int", "float32", "int32", "uint32"), 4),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "bf16", "c10::half", "c10::bfloat16"), 2),
    **dict.fromkeys(("char", "byte", "bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
}


def payload(events: Events, rows: Mask, steps: int) -> float | None:
    """Bytes per step that the communication rows state; None as soon as one of them is silent."""
    used, number = np.unique(events.collective[rows], return_counts=True)
    sizes = [_size(events.collective_table[i]) if i >= 0 else None for i in used]
    known = [size * int(n) for size, n in zip(sizes, number, strict=True) if size is not None]
    return sum(known) / steps if len(known) == len(sizes) else None


def element_bytes(dtype: str) -> int | None:
    """Bytes of one element of a type as communication rows and ops spell it; None for one that is not known."""
    return _ELEMENT_BYTES.get(dtype.lower())


def _size(collective: Collective) -> int | None:
    element = element_bytes(collective.dtype)
    elements = max(collective.in_elements, collective.out_elements)
    return element * elements if element is not None and elements >= 0 else None
