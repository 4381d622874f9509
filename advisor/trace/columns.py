"""Decoded rows, chunk after chunk, into the columns of `Events`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.trace.dialects import category, is_annotation
from advisor.trace.events import Category, Collective, Events, Ints, MemoryEvents, Thread
from advisor.trace.schema import Args, Event

NO_ARGS = Args()
INT64 = np.iinfo(np.int64)
# A float holds nanoseconds exactly (after rounding) while the µs value stays below 2**42: 53 bits, 10 for the fraction.
EXACT_FLOAT_US = float(1 << 42)
# More than this cannot be a time: it is 146 years, and leaves room to add baseTimeNanoseconds.
LATEST_NS = 1 << 62


class Table:
    """Interns values: each distinct one gets the next index."""

    def __init__(self) -> None:
        self.index: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.index.setdefault(value, len(self.index))

    def values(self) -> tuple[Any, ...]:
        return tuple(self.index)


class Builder:
    """Collects rows; `events()` gives the sorted columns."""

    def __init__(self) -> None:
        self.names, self.threads, self.dims, self.dtypes = Table(), Table(), Table(), Table()
        self.stacks, self.collectives = Table(), Table()
        self.thread_names: dict[tuple[str, str], str] = {}
        self.counts: dict[str, int] = {}
        self.rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.memory: dict[str, list[int]] = {name: [] for name in MEMORY_COLUMNS}

    def count(self, reason: str, number: int = 1) -> None:
        """Notes that `number` rows were left out or repaired, and why."""
        self.counts[reason] = self.counts.get(reason, 0) + number

    def add(self, events: Iterable[Event]) -> None:
        """Adds rows in file order."""
        for event in events:
            phase = event.ph
            if phase == "X":
                self._complete(event)
            elif phase in ("i", "I"):
                if event.name == "[memory]":
                    self._memory(event)
            elif phase == "M":
                self._metadata(event)

    def _complete(self, event: Event) -> None:
        start, dur = nanoseconds(event.ts), nanoseconds(event.dur)
        if start is None:
            return self.count("without a time")
        if dur is None:
            self.count("without a duration")
            dur = 0
        elif dur < 0:
            self.count("with a negative duration")
            dur = 0
        args = event.args or NO_ARGS
        name = event.name or ""
        kind = category(event.cat or "")
        if kind == Category.CPU_OP and is_annotation(name):
            kind = Category.ANNOTATION
        pid, tid = label(event.pid), label(event.tid)
        if tid.endswith("annotations"):
            kind = Category.DEVICE_ANNOTATION
        device_row = kind in _DEVICE_ROWS
        rows = self.rows
        rows["start_ns"].append(start)
        rows["dur_ns"].append(dur)
        rows["name"].append(self.names(name))
        rows["category"].append(int(kind))
        rows["thread"].append(self.threads((pid, tid)))
        rows["device"].append(integer(args.device))
        rows["stream"].append(stream_of(args, tid) if device_row else integer(args.stream))
        rows["correlation"].append(integer(args.correlation))
        external = args.external if args.external is not None else args.external_2021
        rows["external_id"].append(integer(external))
        rows["bytes"].append(integer(args.bytes))
        rows["dims"].append(self._text(self.dims, args.dims or args.dims_2021))
        rows["dtypes"].append(self._text(self.dtypes, args.dtypes))
        rows["sequence"].append(integer(args.sequence))
        rows["forward_thread"].append(integer(args.forward))
        rows["python_id"].append(integer(args.python_id))
        rows["python_parent"].append(integer(args.python_parent))
        rows["stack"].append(self.stacks(args.stack) if args.stack else -1)
        rows["collective"].append(self._collective(args) if args.collective else -1)
        rows["blocks"].append(blocks(args.grid))
        return None

    @staticmethod
    def _text(table: Table, raw: Any) -> int:
        text = bytes(raw)
        return table(text) if text else -1

    def _collective(self, args: Args) -> int:
        return self.collectives(
            Collective(
                name=args.collective or "",
                dtype=args.dtype or "",
                in_elements=integer(args.in_elements),
                out_elements=integer(args.out_elements),
                group_size=integer(args.group_size),
                group=label(args.group),
                sequence=integer(args.collective_sequence),
            )
        )

    def _memory(self, event: Event) -> None:
        time, args = nanoseconds(event.ts), event.args or NO_ARGS
        if time is None:
            return self.count("without a time")
        values = (time, args.memory_bytes, args.allocated, args.reserved, args.device_type, args.device_id)
        for name, value in zip(MEMORY_COLUMNS, values, strict=True):
            self.memory[name].append(integer(value))
        return None

    def _metadata(self, event: Event) -> None:
        if event.name == "thread_name" and event.args is not None and isinstance(event.args.name, str):
            self.thread_names[label(event.pid), label(event.tid)] = event.args.name

    def events(self, base_ns: int) -> Events:
        """The columns, sorted by start (longer first on a tie, else in file order), `base_ns` added to all times."""
        columns = {name: np.array(self.rows[name], kind) for name, kind in COLUMNS.items()}
        order = np.lexsort((-columns["dur_ns"], columns["start_ns"]))
        columns = {name: column[order] for name, column in columns.items()}
        columns["start_ns"] += base_ns
        return Events(
            **columns,
            names=self.names.values(),
            threads=tuple(
                Thread(pid, tid, self.thread_names.get((pid, tid), "")) for pid, tid in self.threads.values()
            ),
            dims_table=_texts(self.dims),
            dtypes_table=_texts(self.dtypes),
            stack_table=self.stacks.values(),
            collective_table=self.collectives.values(),
        )

    def memory_events(self, base_ns: int) -> MemoryEvents:
        """The memory instants, by time."""
        columns = {name: np.array(self.memory[name], kind) for name, kind in MEMORY_COLUMNS.items()}
        order = np.argsort(columns["time_ns"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
        columns["time_ns"] += base_ns
        return MemoryEvents(**columns)


COLUMNS: dict[str, npt.DTypeLike] = {
    "start_ns": np.int64,
    "dur_ns": np.int64,
    "name": np.int32,
    "category": np.int8,
    "thread": np.int32,
    "device": np.int32,
    "stream": np.int64,
    "correlation": np.int64,
    "external_id": np.int64,
    "bytes": np.int64,
    "dims": np.int32,
    "dtypes": np.int32,
    "sequence": np.int64,
    "forward_thread": np.int64,
    "python_id": np.int64,
    "python_parent": np.int64,
    "stack": np.int32,
    "collective": np.int32,
    "blocks": np.int64,
}
MEMORY_COLUMNS: dict[str, npt.DTypeLike] = {
    "time_ns": np.int64,
    "bytes": np.int64,
    "total_allocated": np.int64,
    "total_reserved": np.int64,
    "device_type": np.int32,
    "device": np.int32,
}
_DEVICE_ROWS = frozenset((Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.DEVICE_ANNOTATION))


def nanoseconds(value: Any) -> int | None:
    """A time stamp or duration in µs (number or text) as integer ns; None where it is none."""
    if isinstance(value, int):
        return value * 1000 if abs(value) < LATEST_NS // 1000 else None
    try:
        scaled = round(value * 1000) if not isinstance(value, str) else round(float(value) * 1000)
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return None
    return scaled if abs(scaled) < LATEST_NS else None


def integer(value: Any) -> int:
    """An id as an integer; -1 where it is absent, no number, or beyond 64 bits."""
    if type(value) is int:
        return value if INT64.min <= value <= INT64.max else -1
    try:
        return integer(int(value))
    except (TypeError, ValueError, OverflowError):
        return -1


def label(value: Any) -> str:
    """A pid or tid as text."""
    return "" if value is None else str(value)


def stream_of(args: Args, tid: str) -> int:
    """The stream of a device row: stated, else read from the row it is drawn on (`7`, `stream 7`)."""
    stated = integer(args.stream)
    return stated if stated != -1 else integer(tid.removeprefix("stream "))


def blocks(grid: Any) -> int:
    """Thread blocks of a launch grid `[x, y, z]`; -1 where absent."""
    if not isinstance(grid, Sequence) or isinstance(grid, str) or not grid:
        return -1
    product = 1
    for side in grid:
        product *= max(integer(side), 0)
    return product if product <= INT64.max else -1


def _texts(table: Table) -> tuple[str, ...]:
    return tuple(raw.decode("utf-8", "replace") for raw in table.values())


__all__ = ["Builder", "Ints"]
