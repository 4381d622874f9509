"""The columns of a trace: what the reader makes and every analysis reads."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.arrays import Floats as Floats  # noqa: PLC0414 - exported again, as Category is
from advisor.arrays import Ints as Ints  # noqa: PLC0414
from advisor.arrays import Mask as Mask  # noqa: PLC0414
from advisor.model import Health
from advisor.trace.category import Category as Category  # noqa: PLC0414 - exported again: where everybody looks for it
from advisor.trace.intervals import Intervals, union
from advisor.trace.meta import Meta
from advisor.trace.numbers import looked_up, row_type, small

if TYPE_CHECKING:
    import pandas as pd

Ids = npt.NDArray[np.int32]
Numbers = npt.NDArray[Any]  # whole numbers, in 32 bits where those hold twice the largest, else in 64


DEVICE_WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)


class Thread(Struct, frozen=True):
    """A row of the trace: a CPU thread or a device stream, as `pid` and `tid` name it."""

    pid: str
    tid: str
    name: str = ""


class Collective(Struct, frozen=True):
    """What a communication row says of itself; empty where the trace is silent."""

    name: str = ""
    dtype: str = ""
    in_elements: int = -1
    out_elements: int = -1
    group_size: int = -1
    group: str = ""
    sequence: int = -1
    purpose: str = ""  # what the process group was made for, in the words of who made it ("mesh_tp")
    peer: int = -1  # rank of the job that a send goes to, or that a receive is from


class Waited(Struct, frozen=True):
    """What a synchronisation row says it waited for; -1 where it does not say.

    stream  the stream on which the event was recorded;  event: correlation of the cudaEventRecord call
    """

    stream: int = -1
    event: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Complete events as parallel columns, sorted by start (longer first on a tie), integer nanoseconds.

    Absent integers are -1. `name`, `dims`, `dtypes`, `strides`, `values`, `stack`, `collective`, `waited` index the
    tables of the same trace (-1 = absent); `thread` indexes `threads`. `dims`, `dtypes`, `strides`, `values` are the
    JSON text of `Input Dims`, `Input type`, `Input Strides`, `Concrete Inputs`; the last two are kept of products,
    convolutions, attention, normalisation, `cat`, broadcasts, cross entropy, and gradients of parts only.
    """

    start_ns: Ints
    dur_ns: Ints
    name: Numbers
    category: npt.NDArray[np.int8]
    thread: Numbers
    device: Numbers
    stream: Numbers
    correlation: Numbers
    external_id: Numbers
    bytes: Numbers
    dims: Numbers
    dtypes: Numbers
    strides: Numbers
    values: Numbers
    sequence: Numbers
    forward_thread: Numbers
    python_id: Numbers
    python_parent: Numbers
    stack: Numbers
    collective: Numbers
    blocks: Numbers  # thread blocks of the grid of a kernel
    waited: Numbers  # of synchronisation rows
    names: tuple[str, ...]
    threads: tuple[Thread, ...]
    dims_table: tuple[str, ...] = ()
    dtypes_table: tuple[str, ...] = ()
    strides_table: tuple[str, ...] = ()
    values_table: tuple[str, ...] = ()
    stack_table: tuple[str, ...] = ()
    collective_table: tuple[Collective, ...] = ()
    waited_table: tuple[Waited, ...] = ()
    # What was asked before, by question: facts of names are few and asked for again by every analysis.
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Ints:
        """Ends of the events."""
        if "end_ns" not in self._known:
            self._known["end_ns"] = self.start_ns + self.dur_ns
            self._known["end_ns"].setflags(write=False)
        ends: Ints = self._known["end_ns"]
        return ends

    def of(self, *categories: Category) -> Mask:
        """Which events are of one of these categories."""
        found = np.zeros(len(self), bool) if not categories else self.category == np.int8(categories[0])
        for category in categories[1:]:
            found |= self.category == np.int8(category)
        return found

    def named(self, *patterns: str) -> Mask:
        """Which events have a name that contains one of these texts, in any case of letters."""
        return self.rows_with(self._names(patterns, lambda: _names_with(self.names, tuple(map(str.lower, patterns)))))

    def exactly(self, *names: str) -> Mask:
        """Which events have exactly one of these names."""

        def look() -> Mask:
            wanted = np.zeros(len(self.names), bool)
            wanted[[index for name in set(names) for index in _indices(self.names).get(name, ())]] = True
            return wanted

        return self.rows_with(self._names(frozenset(names), look))

    def names_where(self, hit: Callable[[str], object], of: Category | None = None) -> Mask:
        """Which names of the table `hit` accepts (of those that events of one category have); each is asked once."""

        def ask() -> list[bool]:
            if of is None:
                return [bool(hit(name)) for name in self.names]
            used = self.names_of(of).tolist()
            return [bool(here and hit(name)) for name, here in zip(self.names, used, strict=True)]

        return self._names((hit, of), ask)

    def names_of(self, category: Category) -> Mask:
        """Which names of the table events of this category have."""

        def look() -> Mask:
            used = np.zeros(len(self.names), bool)
            used[self.name.compress(self.of(category))] = True
            return used

        return self._names(category, look)

    def rows_with(self, names: Mask) -> Mask:
        """Which events have one of these names (a mask over the table)."""
        rows, first = self._by_name()
        chosen = np.flatnonzero(names)
        if int((first[chosen + 1] - first[chosen]).sum()) * _MANY_ROWS > len(self):
            return looked_up(names, self.name)
        found = np.zeros(len(self), bool)
        for low, high in zip(first[chosen].tolist(), first[chosen + 1].tolist(), strict=True):
            found[rows[low:high]] = True
        return found

    def _by_name(self) -> tuple[Numbers, Ints]:
        """The rows ordered by name, and where those of each name begin."""
        if "by_name" not in self._known:
            rows = np.argsort(small(self.name), kind="stable").astype(row_type(len(self)), copy=False)
            ends = np.cumsum(np.bincount(self.name, minlength=len(self.names)))
            self._known["by_name"] = rows, np.append(0, ends)
        known: tuple[Numbers, Ints] = self._known["by_name"]
        return known

    def _names(self, question: Hashable, answer: Callable[[], Mask | list[bool]]) -> Mask:
        if question not in self._known:
            self._known[question] = np.asarray(answer(), bool)
        known: Mask = self._known[question]
        return known

    def by_sequence(self, pattern: str) -> tuple[Ints, Ints]:
        """Rows of events with a sequence number whose name contains this text, sorted by it, and these numbers."""
        question = ("by_sequence", pattern)
        if question not in self._known:
            rows = np.flatnonzero(self.named(pattern) & (self.sequence >= 0))
            self._known[question] = rows[np.argsort(self.sequence[rows], kind="stable")]
        rows = self._known[question]
        return rows, self.sequence[rows]

    def covered(self, rows: Ints | Mask) -> Intervals:
        """The union of the given rows, in time."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        return union(self.start_ns.take(chosen), self.end_ns.take(chosen))

    def text(self, row: int) -> str:
        """The name of one event."""
        return self.names[int(self.name[row])]


# From one row of so many on, looking every entry of the column up costs less than marking the rows.
_MANY_ROWS = 3


@functools.lru_cache(maxsize=4)
def _indices(names: tuple[str, ...]) -> dict[str, list[int]]:
    """Where each name stands."""
    found: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        found.setdefault(name, []).append(index)
    return found


@functools.lru_cache(maxsize=4)
def _folded(names: tuple[str, ...]) -> tuple[str, list[int]]:
    """All names in small letters in one text, and where each starts: one search there beats one per name."""
    folded = [name.lower() for name in names]
    starts = [0, *itertools.accumulate(len(name) + 1 for name in folded)]
    return "\0".join(folded), starts


def _names_with(names: tuple[str, ...], patterns: tuple[str, ...]) -> Mask:
    """Which names contain one of these texts (in small letters)."""
    text, starts = _folded(names)
    found = np.zeros(len(names), bool)
    for pattern in patterns:
        at = text.find(pattern)
        while at >= 0:
            index = bisect.bisect_right(starts, at) - 1
            found[index] = True
            if index + 1 >= len(names):
                break
            at = text.find(pattern, starts[index + 1])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class MemoryEvents:
    """`[memory]` instants: allocations (positive bytes) and frees (negative) with the totals after them.

    address   of the block, the same for its allocation and its free; -1 where not stated
    """

    time_ns: Ints
    bytes: Ints
    total_allocated: Ints
    total_reserved: Ints
    device_type: Ids
    device: Ids
    address: Ints


@dataclass(frozen=True, eq=False)
class Trace:
    """One trace file, read."""

    path: str
    events: Events
    meta: Meta
    memory: MemoryEvents
    health: tuple[Health, ...] = ()

    @functools.cached_property
    def device_work(self) -> Mask:
        """Rows that keep a device busy: kernels, copies, memsets, linked to a launch or not. Never annotations."""
        return self.events.of(*DEVICE_WORK)

    @functools.cached_property
    def busy(self) -> Intervals:
        """When a device worked: the union of that work."""
        return self.events.covered(self.device_work)

    @functools.cached_property
    def without_ops(self) -> str:
        """Why no op of torch is in it, where its recorder does not look at ops; empty for every other trace."""
        if self.meta.format == "kineto" or self.events.of(Category.CPU_OP).any():
            return ""
        what = "an export of Nsight Systems" if self.meta.format == "nsight" else "a Perfetto trace"
        return f"the trace is {what} without torch ops; capture the script with `advisor run`"

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """Facts for people: file and number of events."""
        return {"file": self.path, "events": len(self.events)}

    def to_pandas(self) -> pd.DataFrame:
        """The events as a DataFrame, one row each; columns and units: `advisor.trace.export.frame.to_pandas`."""
        from advisor.trace.export.frame import to_pandas

        return to_pandas(self)
