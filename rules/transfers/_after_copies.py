"""Kernels that wait for a copy on another stream: what a trace shows of it where it names no event."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Ints, Price, constant

# What an empty stream's launch takes where the trace has too few of them to tell.
_LEAST_NS = 1e3 * constant("device.launch_delay_us").range[1]
_FEW = 20
# Of launches on an empty stream three of four are as fast; slower ones met something that the trace does not show.
_MOST = 75


def _launch_ns(price: Price, queued: tuple[Ints, Ints, Ints]) -> float:
    """From a call to the start of its work where the stream had nothing else to do, ns, as this trace has it.

    A kernel that waited for another stream starts no later after that than one whose stream was empty when it was
    launched: a few µs where a GPU and its host are fast, 10 to 20 where they are not.
    """
    works, call, before = queued
    empty = before < call
    took = price.ops.events.start_ns[works[empty]] - call[empty]
    return max(float(np.percentile(took, _MOST)), _LEAST_NS) if len(took) >= _FEW else _LEAST_NS


def waited_for(price: Price, rows: Ints) -> Ints:
    """Those of these copies that kernels wait for: on a stream of kernels, or the next kernel starts as they end.

    As they end: at once; or within the time that an empty stream's launch takes here, where the kernel had been
    launched that long before it began, and its stream had nothing to do.
    """
    events = price.ops.events
    kernels = np.flatnonzero(events.of(Category.KERNEL))
    in_line = np.isin(events.stream[rows], events.stream[kernels])
    if not len(kernels):
        return rows[in_line]
    at = np.minimum(np.searchsorted(events.start_ns[kernels], events.end_ns[rows]), len(kernels) - 1)
    after_ns = events.start_ns[kernels[at]] - events.end_ns[rows]
    works, call, before = queued = _queued(price)
    usual_ns = _launch_ns(price, queued)
    place = np.full(len(events), -1, np.int64)
    place[works] = np.arange(len(works))
    held = np.zeros(len(rows), bool)
    known = place[kernels[at]] >= 0
    mine = place[kernels[at[known]]]
    free = before[mine] < events.end_ns[rows[known]]
    held[known] = (
        free & (events.start_ns[works[mine]] - call[mine] > usual_ns) & (call[mine] < events.end_ns[rows[known]])
    )
    soon = (after_ns >= 0) & ((after_ns <= _LEAST_NS) | (held & (after_ns <= usual_ns)))
    return rows[in_line | soon]


def _queued(price: Price) -> tuple[Ints, Ints, Ints]:
    """(work whose call is known, when that began, when the work before it on its stream ended).

    The first work of each stream, which has none before it, is left out.
    """
    events, launch = price.ops.events, price.ops.links.launch
    works = np.flatnonzero(price.ops.trace.device_work)
    works = works[np.lexsort((events.start_ns[works], events.stream[works], events.device[works]))]
    same = (np.diff(events.stream[works], prepend=-1) == 0) & (np.diff(events.device[works], prepend=-1) == 0)
    before = np.concatenate((np.zeros(1, np.int64), events.end_ns[works]))[:-1]
    kept = same & (launch[works] >= 0)
    return works[kept], events.start_ns[launch[works[kept]]], before[kept]
