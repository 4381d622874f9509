"""Which blocks of memory live at the peak of the profiled window: their kind, module and line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.module_instants import ModuleInstants
from advisor.analyses.lines.lines import Lines
from advisor.analyses.step.phases import Phases
from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.trace.events import Category, Ints, Mask, MemoryEvents, Trace
from advisor.trace.intervals import Intervals
from advisor.trace.op_names import AUTOGRAD_NODE

NOT_RECORDED = "memory events were not recorded; capture with `advisor run --memory` (profile_memory=True)"
KINDS = ("weights", "optimizer", "gradients", "activations", "temporaries", "input", "unknown")
_NEVER = np.iinfo(np.int64).max
_BEFORE = np.iinfo(np.int64).min


class Blocks(Struct, frozen=True, eq=False):
    """Blocks with their lives: bytes, when allocated (`_BEFORE`: before the first row) and freed (`_NEVER`), ns."""

    size: Ints
    born_ns: Ints
    freed_ns: Ints


class LiveMemory(Struct, frozen=True, eq=False):
    """What tensors hold at the peak of the profiled window, on the accelerator where it allocates, else on the host.

    on_device   whether the rows are those of an accelerator, and device its index
    peak_bytes  recorded blocks that live at once, and what was held before (`held`); of an accelerator the total that
                its allocator stated
    peak_ns     when
    held        kind -> bytes allocated before the first row and never freed in the window: of an accelerator from the
                allocator's total, on the host the weights and the optimizer state that capture counted
    blocks      those recorded; kind: index into KINDS, module and line: into `modules` and `lines`, -1 not known
    saved       allocated in the forward and freed in the backward: what checkpointing may free
    at_peak     which of them live at the peak; their bytes and `held` sum to peak_bytes exactly
    """

    on_device: bool
    device: int
    peak_bytes: int
    peak_ns: int
    held: Mapping[str, int]
    blocks: Blocks
    kind: Ints
    module: Ints
    line: Ints
    at_peak: Mask
    saved: Mask
    modules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    of_window: Intervals = field(default_factory=lambda: np.empty((0, 2), np.int64))

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        phases: Phases,
        record: RankRecord | None,
        instants: ModuleInstants | None,
        lines: Lines | None,
    ) -> LiveMemory:
        """The blocks of this rank. Raises Missing where memory events were not recorded."""
        memory, rows = trace.memory, _rows_of_one_device(trace.memory)
        blocks = paired(memory, rows)
        on_device = bool(memory.device_type[rows[0]] > 0)
        started = int(memory.time_ns[rows[0]])
        known = _known(record)
        before = 0
        if on_device and memory.total_allocated[rows[0]] >= 0:
            total = int(memory.total_allocated[rows[0]] - memory.bytes[rows[0]])
            freed_later = int(blocks.size[blocks.born_ns == _BEFORE].sum())
            before = max(total - freed_later, 0)
        held = _split(before, known) if on_device else {name: size for name, size in known.items() if size}
        peak_ns, most = _peak(blocks, started)
        at_peak = (blocks.born_ns <= peak_ns) & (blocks.freed_ns > peak_ns)
        kind = _kinds(trace, blocks, phases)
        module = np.full(len(blocks.size), -1, np.int64)
        if instants is not None:
            module = np.where(blocks.born_ns > _BEFORE, instants.module_at(np.maximum(blocks.born_ns, started)), -1)
        line, names = _lines(lines, blocks)
        return cls(
            on_device=on_device,
            device=int(memory.device[rows[0]]),
            peak_bytes=most + sum(held.values()),
            peak_ns=peak_ns,
            held=held,
            blocks=blocks,
            kind=kind,
            module=module,
            line=line,
            at_peak=at_peak,
            saved=within(phases.forward, blocks.born_ns) & within(phases.backward, blocks.freed_ns),
            modules=instants.calls.paths if instants else (),
            lines=names,
            of_window=steps.window,
        )


def paired(memory: MemoryEvents, rows: Ints) -> Blocks:
    """Each allocation with its free: by address, else the last of that size that still lives."""
    time, change, address = (column[rows].astype(np.int64) for column in (memory.time_ns, memory.bytes, memory.address))
    time, change, address = (column[change != 0] for column in (time, change, address))
    key = np.where(address >= 0, address, -np.abs(change))
    before, after = _matches(key, change)
    if (change[before] != -change[after]).any():
        return _one_by_one(time, change, key)
    freed = np.full(len(time), _NEVER, np.int64)
    freed[before] = time[after]
    # A free whose allocation is not here: allocated before the first row.
    alone = change < 0
    alone[after] = False
    freed[alone] = time[alone]
    blocks = np.flatnonzero((change > 0) | alone)
    return Blocks(np.abs(change[blocks]), np.where(alone, _BEFORE, time)[blocks], freed[blocks])


def _matches(key: Ints, change: Ints) -> tuple[Ints, Ints]:
    """Allocations and the frees that end them, as opening and closing brackets belong together, by key."""
    order = np.argsort(key, kind="stable")
    step = np.sign(change[order])
    level = np.empty(len(order), np.int64)
    # How many live. A free has the level of what it ends; levels of one key differ from those of another by a constant.
    level[order] = np.cumsum(step) + (step < 0)
    nested = np.lexsort((level, key))
    before, after = nested[:-1], nested[1:]
    same = (key[before] == key[after]) & (level[before] == level[after])
    matches = same & (change[before] > 0) & (change[after] < 0)
    return before[matches], after[matches]


def _one_by_one(times: Ints, changes: Ints, keys: Ints) -> Blocks:
    """The same where a free and the allocation at its address differ in size: these are no pair."""
    size, born, freed = list[int](), list[int](), list[int]()
    alive: dict[int, list[int]] = defaultdict(list)
    for time, change, key in zip(times.tolist(), changes.tolist(), keys.tolist(), strict=True):
        if change > 0:
            alive[key].append(len(size))
            size.append(change)
            born.append(time)
            freed.append(_NEVER)
        elif alive[key] and size[alive[key][-1]] == -change:
            freed[alive[key].pop()] = time
        else:  # allocated before the first row
            size.append(-change)
            born.append(_BEFORE)
            freed.append(time)
    return Blocks(*(np.array(column, np.int64) for column in (size, born, freed)))


def _rows_of_one_device(memory: MemoryEvents) -> Ints:
    """The rows of the accelerator that has most of them, else those of the host."""
    on_device = memory.device_type > 0
    if on_device.any():
        devices, counts = np.unique(memory.device[on_device], return_counts=True)
        return np.flatnonzero(on_device & (memory.device == devices[counts.argmax()]))
    rows = np.flatnonzero(memory.device_type == 0)
    if not len(rows):
        raise Missing(NOT_RECORDED)
    return rows


def _known(record: RankRecord | None) -> dict[str, int]:
    """Bytes of weights and of optimizer state that capture counted."""
    if record is None:
        return {}
    found: dict[str, Any] = {"weights": (record.model or {}).get("parameter_bytes")}
    found["optimizer"] = sum(one.state_bytes or 0 for one in record.optimizers or ())
    return {name: size for name, size in found.items() if isinstance(size, int) and size > 0}


def _split(total: int, known: Mapping[str, int]) -> dict[str, int]:
    """What an allocator held before, by what is known of it; the rest is not."""
    held = {}
    for name, size in known.items():
        held[name] = min(size, total)
        total -= held[name]
    held["unknown"] = total
    return {name: size for name, size in held.items() if size}


def _peak(blocks: Blocks, started: int) -> tuple[int, int]:
    """When the most bytes live, and how many: after all frees and allocations of an instant but the first to come."""
    times = np.concatenate((np.maximum(blocks.born_ns, started), blocks.freed_ns))
    changes = np.concatenate((blocks.size, -blocks.size))
    order = np.lexsort((changes, times))
    instants, first = np.unique(times[order], return_index=True)
    live = np.cumsum(np.add.reduceat(changes[order], first))
    at = int(live.argmax())
    return int(instants[at]), int(live[at])


def within(spans: Intervals, times: Ints) -> Mask:
    """Which instants lie in one of these disjoint spans."""
    if not len(spans):
        return np.zeros(len(times), bool)
    at = np.searchsorted(spans[:, 0], times, side="right") - 1
    inside: Mask = (at >= 0) & (times < spans[np.maximum(at, 0), 1])
    return inside


def _kinds(trace: Trace, blocks: Blocks, phases: Phases) -> Ints:
    """The kind of each block, by the phases in which it was allocated and freed."""
    born, freed = blocks.born_ns, blocks.freed_ns
    parts = {name: getattr(phases, name) for name in ("input", "forward", "backward", "optimizer")}
    at_birth = {name: within(spans, born) for name, spans in parts.items()}
    at_end = {name: within(spans, freed) for name, spans in parts.items()}
    kind = np.full(len(born), KINDS.index("unknown"), np.int64)

    def put(name: str, mask: Mask) -> None:
        kind[mask & (kind == KINDS.index("unknown"))] = KINDS.index(name)

    put("input", at_birth["input"])
    put("temporaries", _in_one_op(trace, born, freed))
    put("activations", at_birth["forward"])
    put("temporaries", at_birth["backward"] & at_end["backward"])
    put("gradients", at_birth["backward"])
    put("temporaries", at_birth["optimizer"] & at_end["optimizer"])
    put("optimizer", at_birth["optimizer"])
    # What was there before and goes in `zero_grad` is the last step's gradients.
    put("gradients", (born == _BEFORE) & at_end["optimizer"])
    return kind


def _in_one_op(trace: Trace, born: Ints, freed: Ints) -> Mask:
    """Blocks that live within a single outermost op of a thread; backward nodes count as ops of their own."""
    events = trace.events
    node = events.named(AUTOGRAD_NODE)
    rows = np.flatnonzero(events.of(Category.CPU_OP) & ~node)
    start, end = events.start_ns[rows], events.end_ns[rows]
    found = np.zeros(len(born), bool)
    for thread in np.unique(events.thread[rows]):
        mine = events.thread[rows] == thread
        outer = np.maximum.accumulate(end[mine])
        first = np.concatenate(([True], start[mine][1:] >= outer[:-1]))
        spans = np.stack((start[mine][first], np.maximum.reduceat(end[mine], np.flatnonzero(first))), axis=1)
        at = np.maximum(np.searchsorted(spans[:, 0], born, side="right") - 1, 0)
        found |= (born >= spans[at, 0]) & (freed <= spans[at, 1])
    return found


def _lines(lines: Lines | None, blocks: Blocks) -> tuple[Ints, tuple[str, ...]]:
    """The line that ran on the loop's thread when each block was allocated."""
    none = np.full(len(blocks.size), -1, np.int64)
    if lines is None or not len(lines.spans):
        return none, ()
    inside = within(lines.spans, blocks.born_ns)
    at = np.maximum(np.searchsorted(lines.spans[:, 0], blocks.born_ns, side="right") - 1, 0)
    names = tuple(f"{source.file}:{source.line} {source.function}".rstrip() for source in lines.sources)
    return np.where(inside, lines.span_source[at], -1), names
