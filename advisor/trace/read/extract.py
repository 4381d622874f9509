"""Rows of one slice of a file, to columns; names, threads and shapes interned."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.trace.events import Category, Ints, Mask
from advisor.trace.numbers import ABSENT, integers, times
from advisor.trace.read.fields import Decoded, Fields, Int32s
from advisor.trace.schema import ExactInstant, ExactRow, Instant, InstantArgs, LabelRow, Row, RowArgs
from advisor.trace.tables import Tables

NO_ARGS = RowArgs()
NO_DEVICE = 2**31 - 1  # an index beyond this is damage
Columns = dict[str, npt.NDArray[Any]]

COLUMNS: dict[str, type[np.generic]] = {
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
    "strides": np.int32,
    "values": np.int32,
    "sequence": np.int64,
    "forward_thread": np.int64,
    "python_id": np.int64,
    "python_parent": np.int64,
    "stack": np.int32,
    "collective": np.int32,
    "blocks": np.int64,
    "waited": np.int32,
}
# Indices of tables, ids and sizes: 32 bits hold them in nearly all files.
NARROW = tuple(name for name in COLUMNS if name not in ("start_ns", "dur_ns", "category"))
MEMORY_COLUMNS: dict[str, type[np.generic]] = {
    "time_ns": np.int64,
    "bytes": np.int64,
    "total_allocated": np.int64,
    "total_reserved": np.int64,
    "device_type": np.int32,
    "device": np.int32,
    "address": np.int64,
}


class Complete(Struct, frozen=True):
    """The complete events of a slice, in file order. Times are ns; ABSENT where they are not stated."""

    start: Ints
    dur: Ints
    names: Int32s
    kinds: npt.NDArray[np.int8]
    threads: Int32s
    fields: Fields


def extract(rows: list[Any], tables: Tables) -> tuple[Columns, Columns]:
    """Columns of the complete events and of the `[memory]` instants among `rows`, in file order.

    Raises TooLargeError where floats lost digits: decode again exactly.
    """
    kinds = set(map(type, rows))
    # `type is` and not isinstance: a third of the cost, on every row of the file.
    row_kind, instant_kind = (ExactRow, ExactInstant) if kinds & {ExactRow, ExactInstant} else (Row, Instant)
    complete = [row for row in rows if type(row) is row_kind]
    instants = []
    if instant_kind in kinds:
        instants = [row for row in rows if type(row) is instant_kind and row.name == "[memory]"]
    columns = columns_of(_complete(complete, tables), tables)
    memory = memory_columns(_memory(instants))
    if LabelRow in kinds:
        keep_labels([row for row in rows if type(row) is LabelRow], tables)
    return columns, memory


def _complete(rows: list[Row], tables: Tables) -> Complete:
    start, dur = np.split(times([*[row.ts for row in rows], *[row.dur for row in rows]]), 2)
    kinds, threads = tables.places.of(rows)
    names = np.fromiter(map(tables.names.__getitem__, [row.name for row in rows]), np.int32, len(rows))
    return Complete(start, dur, names, kinds, threads, Decoded([row.args or NO_ARGS for row in rows]))


def columns_of(rows: Complete, tables: Tables) -> Columns:
    """The columns of complete events. Raises TooLargeError as `extract`."""
    kinds = rows.kinds
    columns: Columns = {
        "start_ns": rows.start,
        "dur_ns": np.maximum(rows.dur, 0),
        "name": rows.names,
        "category": kinds,
        "thread": rows.threads,
    }
    ops, runtime = kinds == Category.CPU_OP, kinds == Category.RUNTIME
    host, python = ops | (kinds == Category.ANNOTATION), kinds == Category.PYTHON
    _host(columns, rows.fields.of(host), tables)
    _details(columns, ops, rows.fields, tables)
    _python(columns, rows.fields.of(python))
    _linked(columns, rows.fields.of(~(host | python)))
    _device(columns, rows.fields.of(~(host | python | runtime)), tables)
    return _timed(columns, rows, tables)


def _timed(columns: Columns, rows: Complete, tables: Tables) -> Columns:
    """The columns without rows that have no time. Counted last: what raises before this is decoded a second time."""
    timed, dur = rows.start != ABSENT, rows.dur
    if np.count_nonzero(timed) < len(timed):
        columns, dur = {name: column[timed] for name, column in columns.items()}, dur[timed]
        tables.count("without a time stamp left out", len(timed) - len(dur))
    absent, negative = int(np.count_nonzero(dur == ABSENT)), int(np.count_nonzero(dur < 0))
    tables.count("without a duration taken as 0 long", absent)
    tables.count("with a negative duration taken as 0 long", negative - absent)
    return columns


def _put(columns: Columns, name: str, values: npt.NDArray[Any]) -> None:
    """Puts what is stated into a column. A column that would hold nothing but -1 is not made."""
    stated = values != -1
    if np.count_nonzero(stated):
        if name in columns:
            np.copyto(columns[name], values, where=stated)
        else:
            columns[name] = values


def _python(columns: Columns, frames: Fields) -> None:
    """Frames of Python: their ids and those of their callers."""
    _put(columns, "python_id", frames.integers("python_id"))
    _put(columns, "python_parent", frames.integers("python_parent"))


def _host(columns: Columns, host: Fields, tables: Tables) -> None:
    """Ops and annotations: ids, shapes, types, stacks."""
    _put(columns, "external_id", host.integers("external"))
    _put(columns, "sequence", host.integers("sequence"))
    _put(columns, "forward_thread", host.integers("forward"))
    _put(columns, "dims", host.texts("dims", tables))
    _put(columns, "dtypes", host.texts("dtypes", tables))
    _put(columns, "stack", host.stacks(tables))
    _put(columns, "collective", host.collectives(tables))


def _details(columns: Columns, ops: Mask, fields: Fields, tables: Tables) -> None:
    """Strides and plain arguments of the ops whose work depends on them: of all ops they would cost too much."""
    here = tables.detailed.of(tables.names, columns["name"]) & ops
    if np.count_nonzero(here):
        detailed = fields.of(here)
        _put(columns, "strides", detailed.texts("strides", tables))
        _put(columns, "values", detailed.texts("values", tables))


def _linked(columns: Columns, rows: Fields) -> None:
    """Host calls and device rows: what links them to each other and to their op."""
    _put(columns, "correlation", rows.integers("correlation"))
    external = rows.integers("external")
    if not np.count_nonzero(external != -1):
        external = rows.integers("external_2021")
    _put(columns, "external_id", external)


def _device(columns: Columns, rows: Fields, tables: Tables) -> None:
    """Kernels, copies, and every row that is none of the others."""
    _put(columns, "device", np.clip(rows.integers("device"), -1, NO_DEVICE))
    _put(columns, "stream", rows.integers("stream"))
    _put(columns, "bytes", rows.integers("bytes"))
    _put(columns, "blocks", rows.blocks())
    _put(columns, "collective", rows.collectives(tables))
    _put(columns, "waited", rows.waits(tables))


def _memory(rows: list[Instant]) -> Columns:
    args = [row.args or InstantArgs() for row in rows]
    return {
        "time_ns": times([row.ts for row in rows]),
        "bytes": integers([arg.bytes for arg in args]),
        "total_allocated": integers([arg.allocated for arg in args]),
        "total_reserved": integers([arg.reserved for arg in args]),
        "device_type": integers([arg.device_type for arg in args]),
        "device": integers([arg.device for arg in args]),
        "address": integers([arg.address for arg in args]),
    }


def memory_columns(instants: Columns) -> Columns:
    """The columns of `[memory]` instants, without those that have no time."""
    known = instants["time_ns"] != ABSENT
    chosen = instants if known.all() else {name: column[known] for name, column in instants.items()}
    return {name: column.astype(MEMORY_COLUMNS[name], copy=False) for name, column in chosen.items()}


def keep_labels(rows: list[LabelRow], tables: Tables) -> None:
    """Notes the names of threads."""
    for row in rows:
        if row.name == "thread_name" and row.args is not None and isinstance(row.args.name, str):
            tables.thread_names[row.pid, row.tid] = row.args.name


__all__ = [
    "COLUMNS",
    "MEMORY_COLUMNS",
    "NARROW",
    "Columns",
    "Complete",
    "columns_of",
    "extract",
    "keep_labels",
    "memory_columns",
]
