"""What holds memory at the peak, as a report shows it, and what would free some of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.analyses.costs.live_memory import KINDS, LiveMemory
from advisor.analyses.step.phases import Phases
from advisor.capture.record import RankRecord
from advisor.computed import Computed
from advisor.model import MemoryHolder, MemoryPeak, MemoryPoint, MemoryRelief, ModuleTable
from advisor.report import memory_reliefs
from advisor.trace.events import Ints, Trace

_MOST_ROWS, _POINTS = 20, 160


def memory(computed: Computed, rank: int, modules: ModuleTable | None) -> MemoryPeak | None:
    """The peak of a rank; None where memory events were not recorded."""
    live = computed.find(LiveMemory)
    if live is None:
        return None
    kinds = {name: live.held.get(name, 0) for name in KINDS}
    for name, size in zip(KINDS, _sums(live, live.kind, len(KINDS)), strict=True):
        kinds[name] += size
    return MemoryPeak(
        rank=rank,
        on_device=live.on_device,
        peak_bytes=live.peak_bytes,
        at_us=(live.peak_ns - int(live.of_window[0, 0])) / 1e3,
        kinds=tuple(MemoryHolder(name, size) for name, size in kinds.items() if size),
        modules=tuple(_holders(live, live.module, live.modules)),
        lines=tuple(_holders(live, live.line, live.lines)),
        timeline=tuple(_timeline(live)),
        reliefs=tuple(_reliefs(live, kinds, modules, computed)),
    )


def _sums(live: LiveMemory, of: Ints, count: int) -> list[int]:
    """Bytes at the peak by index, exactly: a weighted bincount would go through floats."""
    found = np.zeros(count, np.int64)
    here = live.at_peak & (of >= 0)
    np.add.at(found, of[here], live.blocks.size[here])
    return [int(size) for size in found]


def _holders(live: LiveMemory, of: Ints, names: tuple[str, ...]) -> Iterator[MemoryHolder]:
    """The largest by name, then the rest and what is not attributed: they sum to the peak."""
    rows = sorted(zip(_sums(live, of, len(names)), names, strict=True), key=lambda row: (-row[0], row[1]))
    rows = [row for row in rows if row[0]]
    for size, name in rows[:_MOST_ROWS]:
        yield MemoryHolder(name, size)
    others = sum(size for size, _ in rows[_MOST_ROWS:])
    if others:
        yield MemoryHolder("", others, "others")
    rest = live.peak_bytes - sum(size for size, _ in rows)
    if rest:
        yield MemoryHolder("", rest, "not attributed")


def _timeline(live: LiveMemory) -> Iterator[MemoryPoint]:
    """Live bytes by kind at even distances over the window, and at the peak."""
    start, end = int(live.of_window[0, 0]), int(live.of_window[-1, 1])
    times = np.unique(np.append(np.linspace(start, end, _POINTS).astype(np.int64), live.peak_ns))
    times = times[times >= start]
    changes = np.zeros((len(times) + 1, len(KINDS)), np.int64)  # the last are those after all instants
    np.add.at(changes, (np.searchsorted(times, live.blocks.born_ns), live.kind), live.blocks.size)
    np.subtract.at(changes, (np.searchsorted(times, live.blocks.freed_ns), live.kind), live.blocks.size)
    for time, found in zip(times.tolist(), changes.cumsum(axis=0)[:-1].tolist(), strict=True):
        sizes = tuple(size + live.held.get(name, 0) for name, size in zip(KINDS, found, strict=True))
        yield MemoryPoint((time - start) / 1e3, sizes)


def _full_state(record: RankRecord | None) -> bool:
    """Whether all optimizer state is known to be of 32 bits."""
    optimizers = (record.optimizers if record else None) or ()
    return bool(optimizers) and all(one.state_dtypes == ["float32"] for one in optimizers)


def _reliefs(
    live: LiveMemory, kinds: dict[str, int], modules: ModuleTable | None, computed: Computed
) -> Iterator[MemoryRelief]:
    yield from memory_reliefs.of_activations(live, modules)
    yield from memory_reliefs.of_kinds(kinds, _full_state(computed.find(RankRecord)))
    yield from memory_reliefs.of_optimizer(live, computed.get(Trace), computed.get(Phases))
