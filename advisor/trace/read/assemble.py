"""Columns of all slices, to the sorted columns of one trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.trace.dialects import is_annotation, is_old, usual_name
from advisor.trace.events import Category, Events, Ints, MemoryEvents, Thread
from advisor.trace.numbers import integer, narrowed
from advisor.trace.read.extract import Columns
from advisor.trace.read.store import Store
from advisor.trace.tables import Tables

_DEVICE_ROWS = (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.DEVICE_ANNOTATION)


def assemble(store: Store, tables: Tables, base_ns: int) -> Events:
    """The events of all slices, sorted by start (longer first on a tie, else in file order). Empties `store`."""
    columns = store.take()
    order = sorted_order(columns["start_ns"], columns["dur_ns"])
    if order is not None:
        for name in columns:
            if columns[name].strides != (0,):  # else it holds one value only
                columns[name] = columns[name].take(order)
    columns["start_ns"] += base_ns
    names = tuple("" if name is None else usual_name(name) for name in tables.names)
    threads = _one_thread_per_label(columns, tables)
    _apply_dialects(columns, names, threads, old=is_old(tables.categories))
    return Events(
        **columns,
        names=names,
        threads=threads,
        dims_table=_texts(tables.dims),
        dtypes_table=_texts(tables.dtypes),
        strides_table=_texts(tables.strides),
        values_table=_texts(tables.values),
        stack_table=tuple(tables.stacks),
        collective_table=tuple(tables.collectives),
        waited_table=tuple(tables.waits),
    )


def assemble_memory(store: Store, base_ns: int) -> MemoryEvents:
    """The `[memory]` instants of all slices, by time. Empties `store`."""
    columns = store.take()
    order = np.argsort(columns["time_ns"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["time_ns"] += base_ns
    return MemoryEvents(**columns)


def sorted_order(start: Ints, dur: Ints) -> npt.NDArray[np.intp] | None:
    """The order by start, longer first on a tie, else as they stand; None where that is so already."""
    if len(start) < 2:
        return None
    order = np.argsort(start, kind="stable")
    starts = start.take(order)
    same = starts[1:] == starts[:-1]
    if same.any():
        # Only the runs of equal starts need the second key.
        tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
        rows = np.flatnonzero(tied)
        order[rows] = order[rows][np.lexsort((-dur[order[rows]], starts[rows]))]
    return None if (order[1:] > order[:-1]).all() else order


def _one_thread_per_label(columns: Columns, tables: Tables) -> tuple[Thread, ...]:
    """Threads by text: a `tid` may be a number in one row and the same number as text in the next."""
    names = {(_label(pid), _label(tid)): name for (pid, tid), name in tables.thread_names.items()}
    index: dict[tuple[str, str], int] = {}
    remap = [index.setdefault((_label(pid), _label(tid)), len(index)) for pid, tid in tables.threads]
    if len(index) < len(remap):
        columns["thread"] = np.array(remap, np.int32)[columns["thread"]]
    return tuple(Thread(pid, tid, names.get((pid, tid), "")) for pid, tid in index)


def _apply_dialects(columns: Columns, names: tuple[str, ...], threads: tuple[Thread, ...], *, old: bool) -> None:
    """What older eras wrote otherwise: annotations among the operators and on rows of their own, streams as text."""
    kinds = columns["category"]
    annotation = np.array([is_annotation(name, old=old) for name in names], bool)
    if annotation.any():
        kinds[(kinds == Category.CPU_OP) & annotation.take(columns["name"])] = Category.ANNOTATION
    drawn = np.array([thread.tid.endswith("annotations") for thread in threads], bool)
    if drawn.any():
        kinds[drawn.take(columns["thread"])] = Category.DEVICE_ANNOTATION
    silent = (columns["stream"] == -1) & np.isin(kinds, np.array(_DEVICE_ROWS, np.int8))
    if silent.any():
        streams = np.array([integer(thread.tid.removeprefix("stream ").split(" ")[0]) for thread in threads], np.int64)
        # The column may be one of those that hold nothing, which cannot be written to, and takes fewer bits.
        columns["stream"] = columns["stream"].astype(np.promote_types(columns["stream"].dtype, narrowed(streams).dtype))
        columns["stream"][silent] = streams[columns["thread"][silent]]


def _label(value: Any) -> str:
    return "" if value is None else str(value)


def _texts(table: dict[Any, int]) -> tuple[str, ...]:
    return tuple(raw.decode("utf-8", "replace") for raw in table if raw)
