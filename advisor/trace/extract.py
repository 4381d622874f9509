"""Decoded rows of one slice of a file, to columns; names, threads and shapes interned."""

from __future__ import annotations

from itertools import chain, compress
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.trace.events import Category, Collective, Waited
from advisor.trace.numbers import ABSENT, Ints, integer, integers, times
from advisor.trace.schema import ExactInstant, ExactRow, Instant, InstantArgs, LabelRow, Row, RowArgs
from advisor.trace.tables import Tables, Texts

NO_ARGS = RowArgs()
NO_WAIT = (-1.0, -1.0)
_NOT_STATED = {-1.0}
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
MEMORY_COLUMNS: dict[str, type[np.generic]] = {
    "time_ns": np.int64,
    "bytes": np.int64,
    "total_allocated": np.int64,
    "total_reserved": np.int64,
    "device_type": np.int32,
    "device": np.int32,
}


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
    columns = _complete(complete, tables)
    memory = _memory(instants)
    if LabelRow in kinds:
        _labels([row for row in rows if type(row) is LabelRow], tables)
    return columns, memory


def _complete(rows: list[Row], tables: Tables) -> Columns:
    start, dur = np.split(times([*[row.ts for row in rows], *[row.dur for row in rows]]), 2)
    lost = start == ABSENT
    if lost.any():
        rows, start, dur = list(compress(rows, (~lost).tobytes())), start[~lost], dur[~lost]
    kinds, threads = tables.places.of(rows)
    columns: Columns = {
        "start_ns": start,
        "dur_ns": np.maximum(dur, 0),
        "name": _indices(tables.names, [row.name for row in rows]),
        "category": kinds,
        "thread": threads,
    }
    args = [row.args or NO_ARGS for row in rows]
    host = (kinds == Category.CPU_OP) | (kinds == Category.ANNOTATION)
    python, runtime = kinds == Category.PYTHON, kinds == Category.RUNTIME
    _host(columns, host, args, tables)
    _details(columns, kinds == Category.CPU_OP, args, tables)
    _python(columns, python, args)
    _linked(columns, runtime, _chosen(runtime, args))
    _device(columns, ~(host | python | runtime), args, tables)
    # Counted last: what raises before this is decoded a second time.
    tables.count("without a time stamp left out", int(lost.sum()))
    tables.count("without a duration taken as 0 long", int((dur == ABSENT).sum()))
    tables.count("with a negative duration taken as 0 long", int(((dur < 0) & (dur != ABSENT)).sum()))
    return columns


def _indices(table: dict[Any, int], values: list[Any]) -> npt.NDArray[np.int32]:
    return np.fromiter(map(table.__getitem__, values), np.int32, len(values))


def _chosen(mask: npt.NDArray[np.bool_], args: list[RowArgs]) -> list[RowArgs]:
    return args if mask.all() else list(compress(args, mask.tobytes()))


def _put(columns: Columns, name: str, mask: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> None:
    """Puts the values of some rows into a column. A column that would hold nothing but -1 is not made."""
    if (values != -1).any():
        if name not in columns:
            columns[name] = np.full(len(mask), -1, COLUMNS[name])
        columns[name][mask] = values


def _python(columns: Columns, mask: npt.NDArray[np.bool_], args: list[RowArgs]) -> None:
    """Frames of Python: their ids and those of their callers."""
    chosen = _chosen(mask, args)
    _put(columns, "python_id", mask, integers([arg.python_id for arg in chosen]))
    _put(columns, "python_parent", mask, integers([arg.python_parent for arg in chosen]))


def _host(columns: Columns, mask: npt.NDArray[np.bool_], args: list[RowArgs], tables: Tables) -> None:
    """Ops and annotations: ids, shapes, types, stacks."""
    chosen = _chosen(mask, args)
    _put(columns, "external_id", mask, integers([arg.external for arg in chosen]))
    _put(columns, "sequence", mask, integers([arg.sequence for arg in chosen]))
    _put(columns, "forward_thread", mask, integers([arg.forward for arg in chosen]))
    _put(columns, "dims", mask, _texts([arg.dims or arg.dims_2021 for arg in chosen], tables.dims))
    _put(columns, "dtypes", mask, _texts([arg.dtypes for arg in chosen], tables.dtypes))
    stacks = [arg.stack for arg in chosen]
    if any(stacks):
        indices = [tables.stacks[stack] if stack else -1 for stack in stacks]
        _put(columns, "stack", mask, np.array(indices, np.int32))
    _collectives(columns, mask, chosen, tables)


def _details(columns: Columns, mask: npt.NDArray[np.bool_], args: list[RowArgs], tables: Tables) -> None:
    """Strides and plain arguments of the ops whose work depends on them: of all ops they would cost too much."""
    here = tables.detailed.of(tables.names, columns["name"]) & mask
    if here.any():
        chosen = _chosen(here, args)
        _put(columns, "strides", here, _texts([arg.strides for arg in chosen], tables.strides))
        _put(columns, "values", here, _texts([arg.values for arg in chosen], tables.values))


def _linked(columns: Columns, mask: npt.NDArray[np.bool_], chosen: list[RowArgs]) -> None:
    """Host calls and device rows: what links them to each other and to their op."""
    _put(columns, "correlation", mask, integers([arg.correlation for arg in chosen]))
    external = integers([arg.external for arg in chosen])
    if (external == -1).all():
        external = integers([arg.external_2021 for arg in chosen])
    _put(columns, "external_id", mask, external)


def _device(columns: Columns, mask: npt.NDArray[np.bool_], args: list[RowArgs], tables: Tables) -> None:
    """Kernels, copies, and every row that is none of the others."""
    chosen = _chosen(mask, args)
    _linked(columns, mask, chosen)
    _put(columns, "device", mask, np.clip(integers([arg.device for arg in chosen]), -1, NO_DEVICE))
    _put(columns, "stream", mask, integers([arg.stream for arg in chosen]))
    _put(columns, "bytes", mask, integers([arg.bytes for arg in chosen]))
    _put(columns, "blocks", mask, _blocks([arg.grid for arg in chosen]))
    _collectives(columns, mask, chosen, tables)
    streams, recorded = [arg.waited_stream for arg in chosen], [arg.waited_event for arg in chosen]
    if not {*streams, *recorded} <= _NOT_STATED:
        waits = zip(streams, recorded, strict=True)
        indices = [-1 if wait == NO_WAIT else tables.waits[_waited(*wait)] for wait in waits]
        _put(columns, "waited", mask, np.array(indices, np.int32))


def _waited(stream: Any, event: Any) -> Waited:
    return Waited(integer(stream), integer(event))


def _texts(raws: list[Any], table: Texts) -> npt.NDArray[np.int32]:
    # JSON text holds no NUL, so that one copy of all texts can be cut again: four times faster than one copy each.
    texts = b"\0".join(raws).split(b"\0") if raws else []
    if len(texts) != len(raws):
        texts = [bytes(raw) for raw in raws]
    return _indices(table, texts)


def _collectives(columns: Columns, mask: npt.NDArray[np.bool_], args: list[RowArgs], tables: Tables) -> None:
    names = [arg.collective for arg in args]
    if any(names):
        indices = [tables.collectives[_collective(arg)] if arg.collective else -1 for arg in args]
        _put(columns, "collective", mask, np.array(indices, np.int32))


def _collective(args: RowArgs) -> Collective:
    return Collective(
        name=args.collective or "",
        dtype=str(args.dtype or ""),
        in_elements=integer(args.in_elements),
        out_elements=integer(args.out_elements),
        group_size=integer(args.group_size),
        group="" if args.group is None else str(args.group),
        sequence=integer(args.collective_sequence),
        purpose="" if args.purpose is None else str(args.purpose),
    )


def _blocks(grids: list[list[float] | None]) -> Ints:
    """Thread blocks of launch grids `[x, y, z]`; -1 where absent or without sense."""
    stated = np.fromiter(map(bool, grids), np.bool_, len(grids))
    known = [grid for grid in grids if grid]
    if not set(map(len, known)) <= {3}:
        return np.array([blocks(grid) if grid else -1 for grid in grids], np.int64)
    sides = np.fromiter(chain.from_iterable(known), np.float64, 3 * len(known)).reshape(-1, 3)
    with np.errstate(invalid="ignore", over="ignore"):
        product = sides[:, 0] * sides[:, 1] * sides[:, 2]
    found = np.full(len(grids), -1, np.int64)
    found[stated] = np.where((product >= 0) & (product < 1 << 53), product, -1.0)
    return found


def blocks(grid: list[float]) -> int:
    """Thread blocks of one launch grid; -1 where it makes no sense."""
    product = grid[0] * grid[1] * grid[2] if len(grid) == 3 else float(np.prod(grid))
    return int(product) if 0 <= product < 1 << 53 else -1


def _memory(rows: list[Instant]) -> Columns:
    args = [row.args or InstantArgs() for row in rows]
    columns: Columns = {
        "time_ns": times([row.ts for row in rows]),
        "bytes": integers([arg.bytes for arg in args]),
        "total_allocated": integers([arg.allocated for arg in args]),
        "total_reserved": integers([arg.reserved for arg in args]),
        "device_type": integers([arg.device_type for arg in args]).astype(np.int32),
        "device": integers([arg.device for arg in args]).astype(np.int32),
    }
    known = columns["time_ns"] != ABSENT
    return columns if known.all() else {name: column[known] for name, column in columns.items()}


def _labels(rows: list[LabelRow], tables: Tables) -> None:
    for row in rows:
        if row.name == "thread_name" and row.args is not None and isinstance(row.args.name, str):
            tables.thread_names[row.pid, row.tid] = row.args.name


__all__ = ["COLUMNS", "MEMORY_COLUMNS", "Columns", "extract"]
