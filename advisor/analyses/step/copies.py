"""Copies between host and device."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import blocking_calls
from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import Lines
from advisor.model import Source
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import Intervals, merge, subtract, total


class CopySite(Struct, frozen=True):
    """Host-device copies of one origin, per step.

    op          the op that copied (`aten::to`, `aten::copy_` …)
    calls, bytes, us   per step; us is the copies' time on the device; bytes None if not recorded
    blocked_us  time that the copy calls blocked the host
    pinned      page-locked host memory; None if not recorded
    to_device   H2D (True) or D2H (False)
    where       the user's line, where known
    rows        the copies on the device;  ops_rows: the ops (else calls) on the host that started them
    """

    op: str
    calls: float
    us: float
    blocked_us: float
    bytes: float | None
    pinned: bool | None
    to_device: bool
    where: Source | None = None
    rows: tuple[int, ...] = ()
    ops_rows: tuple[int, ...] = ()


class Copies(Struct, frozen=True, eq=False):
    """Device memory copies in W, per step.

    calls               all device memcpy events
    h2d_bytes           host to device; None if the trace does not contain them
    h2d_pageable_bytes  those from pageable memory; None if unknown (ROCm does not record it)
    pageable_us, pageable_calls   the same copies' device time and number
    d2h_bytes           device to host
    exposed             copies minus all kernels, in W
    exposed_us          µs per step;  exposed_share: of |W|
    blocking            host-device copies whose call blocked the host until the data was copied, longest first
    """

    calls: float
    h2d_bytes: float | None
    h2d_pageable_bytes: float | None
    d2h_bytes: float | None
    pageable_us: float | None
    pageable_calls: float | None
    exposed: Intervals
    exposed_us: float
    exposed_share: float
    blocking: tuple[CopySite, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, busy: GpuBusy, links: Links, nesting: Nesting, lines: Lines) -> Copies:
        """Copies of this rank; zero where there are none. Missing without device work."""
        events = trace.events
        copies = events.of(Category.MEMCPY) & links.inside
        to_device = copies & events.named("HtoD")
        to_host = copies & events.named("DtoH")
        pageable = to_device & events.named("pageable")
        # CUDA's rows say which host memory it was; ROCm's say "Host", which may be either.
        known = to_device & events.named("pageable", "pinned")
        tells = int(known.sum()) == int(to_device.sum())
        exposed = subtract(busy.copy, merge(busy.computing, busy.talking))
        return cls(
            calls=float(copies.sum()) / steps.count,
            h2d_bytes=_bytes(events, to_device, steps),
            h2d_pageable_bytes=_bytes(events, pageable, steps) if tells else None,
            d2h_bytes=_bytes(events, to_host, steps),
            pageable_us=steps.per_step_us(int(events.dur_ns[pageable].sum())) if tells else None,
            pageable_calls=float(pageable.sum()) / steps.count if tells else None,
            exposed=exposed,
            exposed_us=steps.of_window_us(total(exposed)) * busy.longer,
            exposed_share=total(exposed) / steps.window_ns * busy.longer,
            blocking=_sites(trace, steps, links, nesting, lines, to_device | to_host),
        )


def _bytes(events: Events, rows: Mask | Ints, steps: Steps) -> float | None:
    """Bytes per step; None as soon as one row does not state its size."""
    sizes = events.bytes[rows]
    return float(sizes.sum()) / steps.count if (sizes >= 0).all() else None


def _sites(
    trace: Trace, steps: Steps, links: Links, nesting: Nesting, lines: Lines, copies: Mask
) -> tuple[CopySite, ...]:
    """Copies whose op did not return before the data had moved, by op and line."""
    events = trace.events
    rows = np.flatnonzero(copies & (links.launch >= 0))
    call = links.launch[rows]
    parent = nesting.parent[call]
    inner = np.where((parent >= 0) & events.of(Category.CPU_OP)[np.maximum(parent, 0)], parent, call)
    blocked = _blocked_ns(events, call, inner, rows)
    outer = np.where(nesting.outer_op[call] >= 0, nesting.outer_op[call], call)
    groups: dict[tuple[str, Source | None, bool], list[int]] = {}
    for i in np.flatnonzero(blocked > 0).tolist():
        key = (events.text(outer[i]), lines.where_op(int(outer[i])), "HtoD" in events.text(rows[i]))
        groups.setdefault(key, []).append(i)
    sites = [
        CopySite(
            op=op,
            calls=len(members) / steps.count,
            us=steps.per_step_us(int(events.dur_ns[rows[members]].sum())),
            blocked_us=steps.per_step_us(int(blocked[members].sum())),
            bytes=_bytes(events, rows[members], steps),
            pinned=_pinned({events.text(row) for row in rows[members]}),
            to_device=to_device,
            where=where,
            rows=tuple(rows[members].tolist()),
            ops_rows=tuple(outer[members].tolist()),
        )
        for (op, where, to_device), members in groups.items()
    ]
    return tuple(sorted(sites, key=lambda site: (-site.blocked_us, site.op)))


def _blocked_ns(events: Events, call: Ints, inner: Ints, rows: Ints) -> Ints:
    """How long the host stood in a copy: in the call if that returned after the copy, and in the sync after it."""
    waits = np.flatnonzero(blocking_calls(events))
    returned_late = events.end_ns[call] >= events.end_ns[rows]
    own = np.where(returned_late | blocking_calls(events)[call], events.dur_ns[call], 0)
    # The wait that follows within the same op belongs to the copy.
    key = np.searchsorted(events.start_ns[waits], events.end_ns[call])
    following = waits[np.minimum(key, max(len(waits) - 1, 0))] if len(waits) else call
    same = (events.thread[following] == events.thread[call]) & (events.end_ns[following] <= events.end_ns[inner])
    same &= (events.start_ns[following] >= events.end_ns[call]) & (inner != call)
    return own + np.where(same, events.dur_ns[following], 0)


def _pinned(names: set[str]) -> bool | None:
    said = {("pinned" in name.lower()) if re.search("pinned|pageable", name, re.IGNORECASE) else None for name in names}
    return said.pop() if len(said) == 1 else None
