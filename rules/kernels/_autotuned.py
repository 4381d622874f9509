"""Kernels that Triton's autotuner runs only to time them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import Category, Ints, RowMask, StepOps

# `do_bench` in Triton's python/triton/testing.py fills a buffer of 256 MB before each launch that it times, so that the
# L2 cache holds nothing, and records an event before and after it.
_FILL = re.compile(r"FillFunctor|^Memset")
_RECORD = re.compile(r"^(cuda|hip)EventRecord")
# Kernels that torch.compile wrote: it times them when it compiles, which `recompiles` tells.
_COMPILED = re.compile(r"^triton_(poi|red|per|tem|spl|for|mm)_")


class Autotuned(Struct, frozen=True, eq=False):
    """Tuning runs of the profiled steps.

    kernels   what is only run to be timed, fills of the cache and runs to warm up among it
    calls     the host calls that launched them
    names     of the tuned kernels, costliest first
    steps     in how many steps something is tuned
    """

    kernels: Ints
    calls: Ints
    names: tuple[str, ...]
    steps: int


def autotuned(recorded: StepOps, at_least: int) -> Autotuned | None:
    """What is tuned in several steps; None where nothing is, or only in one. at_least: timed launches in one step."""
    events, links = recorded.events, recorded.links
    if not events.of(Category.RUNTIME).any():
        return None
    rows = np.flatnonzero(events.of(Category.KERNEL, Category.MEMSET) & links.inside & (links.launch >= 0))
    rows = rows[np.lexsort((events.start_ns[links.launch[rows]], events.thread[links.launch[rows]]))]
    fills = events.rows_with(events.names_where(_FILL.search))[rows]
    if len(rows) == 0 or not fills.any():
        return None
    timed = _timed(recorded, rows, fills)
    timed &= ~events.rows_with(events.names_where(_COMPILED.search))[rows]
    if timed.sum() < at_least:
        return None
    runs = [rows[at] for at in _runs(recorded, rows, fills, timed, at_least)]
    steps = np.unique([links.step[run[0]] for run in runs])
    if len(steps) < 2:
        return None  # what is tuned once, with the first call of its kind, stays so
    kernels = np.concatenate(runs)
    took: dict[str, float] = {}
    for run in runs:
        name = next(events.text(int(row)) for row in run if not _FILL.search(events.text(int(row))))
        took[name] = took.get(name, 0.0) + float(events.dur_ns[run].sum())
    names = tuple(sorted(took, key=lambda one: -took[one]))
    return Autotuned(kernels, links.launch[kernels].astype(np.int64), names, len(steps))


def _timed(recorded: StepOps, rows: Ints, fills: RowMask) -> RowMask:
    """Which launches follow a fill, with an event recorded before and one after them; rows: in order of launches."""
    events = recorded.events
    call = recorded.links.launch[rows]
    records = np.flatnonzero(events.rows_with(events.names_where(_RECORD.search)) & events.of(Category.RUNTIME))
    known: Ints = np.zeros(len(rows), np.int64)
    for thread in np.unique(events.thread[call]):
        mine = events.thread[call] == thread
        at = np.sort(events.start_ns[records[events.thread[records] == thread]])
        known[mine] = np.searchsorted(at, events.start_ns[call[mine]])
    last = np.arange(len(rows)) == len(rows) - 1
    after = np.append(known[1:], 0) > known
    # The first of the fills that stand directly before: what a kernel itself needs cleared follows the cache's.
    opens = np.where(fills & ~np.append(False, fills[:-1]), np.arange(len(rows)), 0)
    first = np.append(0, np.maximum.accumulate(opens)[:-1])
    found: RowMask = ~fills & np.append(False, fills[:-1]) & (known > known[first]) & (after | last)
    return found


def _runs(recorded: StepOps, rows: Ints, fills: RowMask, timed: RowMask, at_least: int) -> Iterator[Ints]:
    """Places of launches of one kernel and of fills, in one step without another kernel, but for the last one."""
    events, links = recorded.events, recorded.links
    work = np.flatnonzero(~fills)
    key = np.column_stack((events.name[rows[work]], links.step[rows[work]], events.thread[links.launch[rows[work]]]))
    begins = np.flatnonzero(np.append(True, (key[1:] != key[:-1]).any(axis=1)))
    enough = np.flatnonzero(np.add.reduceat(timed[work].astype(np.int64), begins) >= at_least)
    ends = np.append(begins[1:], len(work))
    for begin, end in zip(begins[enough].tolist(), ends[enough].tolist(), strict=True):
        mine = work[begin:end]
        # The call that was to be made comes after all that is timed.
        first, last = mine[0], mine[timed[mine]][-1]
        while first > 0 and fills[first - 1] and links.step[rows[first - 1]] == links.step[rows[first]]:
            first -= 1
        yield np.arange(first, last + 1)
