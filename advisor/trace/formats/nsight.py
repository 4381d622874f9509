"""Nsight Systems' SQLite export (`nsys export --type sqlite`): one process of it, as rows of Kineto.

Tables and columns: https://docs.nvidia.com/nsight-systems/ , Exporter, SQLite Schema Reference. Tables are made when
there is something to put into them, and columns differ by version: what is absent is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain, islice
from typing import Any

from advisor.errors import InputError
from advisor.model import Health
from advisor.places.place import Place
from advisor.trace.formats.converted import SLICE_ROWS, Format
from advisor.trace.formats.sqlite_tables import Tables, opened
from advisor.trace.schema import LabelArgs, LabelRow, Row, RowArgs

_KERNEL, _MEMCPY, _MEMSET = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
_GRAPH, _RUNTIME, _RANGES = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_ON_DEVICE = (_KERNEL, _MEMCPY, _MEMSET, _GRAPH)
_SESSION = "TARGET_INFO_SESSION_START_TIME"
# Push and pop, start and end, of NVTX and of its text files (ENUM_NSYS_EVENT_TYPE); others are marks and names.
_PUSHED, _STARTED = (59, 70), (60, 71)
# ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND, which are those of CUPTI, in the words of Kineto.
_DIRECTIONS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
# `cudaLaunchKernel_v7000`, `cudaMemcpyAsync_ptsz_v7000`: the version of the entry point, which Kineto leaves out.
_VERSION = re.compile(r"(?:_pt[sd][sz])?_v\d+$")
# What torch.autograd.profiler.emit_nvtx and `--pytorch=autograd-nvtx` name the ranges of ops.
_OP = re.compile(r"((?:aten|c10d|autograd|torch|prims)::[^,]+)(?:,.*)?$", re.DOTALL)
_PID_SHIFT, _MASK = 24, 0xFFFFFF
# Below this a float of µs holds every ns.
_EXACT_NS = 1 << 52


@dataclass(slots=True)
class NsightExport:
    """An export that is read from disk; a `Converted`."""

    place: Place
    format: Format = "nsight"
    base_ns: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    cut_short: str = ""
    _health: list[Health] = field(default_factory=list)

    def slices(self) -> Iterator[list[Any]]:
        """The rows of the process with the most device work. Raises InputError for what is no such export."""
        with opened(self.place) as tables:
            if not any(table in tables.columns for table in (*_ON_DEVICE, _RUNTIME, _RANGES)):
                raise InputError(f"{self.place}: {_nothing(tables)}")
            pid = self._process(tables)
            self.base_ns = _session_ns(tables)
            self.facts = {"deviceProperties": list(_devices(tables, pid))}
            texts = {key: text for key, text in tables.rows("StringIds", ("id", "value")) if isinstance(text, str)}
            rows = chain(
                _kernels(tables, texts, pid),
                _copies(tables, pid),
                _graphs(tables, pid),
                _calls(tables, texts, pid),
                _ranges(tables, texts, pid),
                _threads(tables, texts, pid),
            )
            while some := list(islice(rows, SLICE_ROWS)):
                yield some
            self._health += _lacks(tables)

    def health(self) -> tuple[Health, ...]:
        """What an export lacks, and which of several processes was read."""
        return tuple(self._health)

    def _process(self, tables: Tables) -> int | None:
        """The process that is read; None where rows name none."""
        counts: dict[int, int] = {}
        for table in _ON_DEVICE:
            for (of,) in tables.rows(table, ("globalPid",)):
                if isinstance(of, int):
                    counts[_pid(of)] = counts.get(_pid(of), 0) + 1
        if not counts:
            return None
        chosen = max(sorted(counts), key=lambda pid: counts[pid])
        if len(counts) > 1:
            text = (
                f"{len(counts)} processes in this export have device work; process {chosen} was read, because it has "
            )
            text += "the most. Profile each rank into a separate file to see all"
            self._health.append(Health("trace-processes", "warning", text))
        return chosen


def window_ns(path: Place) -> tuple[int, int] | tuple[None, None]:
    """When the work of an export began and ended, ns since 1970; None where it says neither date nor work.

    Raises InputError as `NsightExport`.
    """
    with opened(path) as tables:
        base, ends = _session_ns(tables), []
        for table in (*_ON_DEVICE, _RUNTIME):
            if tables.has(table, "start", "end"):
                ends += tables.base.execute(f'SELECT min("start"), max("end") FROM {table}').fetchall()
        known = [(low, high) for low, high in ends if isinstance(low, int) and isinstance(high, int)]
        if not any(table in tables.columns for table in (*_ON_DEVICE, _RUNTIME, _RANGES)):
            raise InputError(f"{path}: {_nothing(tables)}")
    return (min(known)[0] + base, max(high for _, high in known) + base) if base and known else (None, None)


def _nothing(tables: Tables) -> str:
    if "META_DATA_EXPORT" in tables.columns or "StringIds" in tables.columns:
        return "an Nsight Systems export without CUDA or NVTX data; profile with `nsys profile --trace=cuda,nvtx`"
    return "an SQLite database, but not an Nsight Systems export; pass a trace"


def _pid(global_id: int) -> int:
    """Of a globalPid or globalTid: the process that it names."""
    return global_id >> _PID_SHIFT & _MASK


def _of(pid: int | None, tables: Tables, table: str, column: str) -> str:
    """The condition for rows of one process."""
    if pid is None or not tables.has(table, column):
        return ""
    return f'("{column}" >> {_PID_SHIFT}) & {_MASK} = {pid}'


def _session_ns(tables: Tables) -> int:
    """When time 0 was, ns since 1970; 0 where the export does not say."""
    found = next(tables.rows(_SESSION, ("utcEpochNs",)), (0,))[0]
    return found if isinstance(found, int) and 0 < found < 1 << 61 else 0


def _devices(tables: Tables, pid: int | None) -> Iterator[dict[str, Any]]:
    """The GPUs in the order of the process's own numbers, as Kineto lists them."""
    wanted = ("id", "name", "computeMajor", "computeMinor", "smCount", "totalMemory")
    listed = {row[0]: row[1:] for row in tables.rows("TARGET_INFO_GPU", wanted)}
    seen = sorted(tables.rows("TARGET_INFO_CUDA_DEVICE", ("cudaId", "gpuId", "pid")), key=lambda row: _whole(row[0]))
    mine = [gpu for _, gpu, of in seen if (pid is None or of == pid) and gpu in listed]
    for gpu in mine or sorted(listed, key=_whole):
        name, major, minor, cores, memory = listed[gpu]
        known = {"name": name, "computeMajor": major, "computeMinor": minor, "numSms": cores, "totalGlobalMem": memory}
        yield {key: value for key, value in known.items() if value not in (None, "")}


def _us(ns: int) -> float | Decimal:
    """µs as Kineto states them, exact to the ns."""
    return ns / 1000 if abs(ns) < _EXACT_NS else Decimal(ns) / 1000


def _whole(value: Any) -> int:
    """An integer column; -1 where it is absent. SQLite lets a column hold anything."""
    return value if isinstance(value, int) else -1


def _on_device(kind: str, name: str, at: tuple[Any, ...], **more: Any) -> Row:
    """A row of a stream. at: start, end, deviceId, streamId, correlationId."""
    start, end, device, stream, correlation = at
    device, stream = _whole(device), _whole(stream)
    args = RowArgs(device=device, stream=stream, correlation=_whole(correlation), **more)
    return _row(kind, name, (device, stream), start, end, args)


def _row(kind: str, name: str, at: tuple[int, int], start: int, end: int, args: RowArgs | None) -> Row:
    return Row(kind, name, *at, _us(start), _us(end - start), args)  # type: ignore[arg-type]  # decimals are read, too


_AT = ("start", "end", "deviceId", "streamId", "correlationId")


def _timed(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows whose first two columns are a start and an end."""
    return (row for row in rows if isinstance(row[0], int) and isinstance(row[1], int))


def _kernels(tables: Tables, texts: Mapping[int, str], pid: int | None) -> Iterator[Row]:
    wanted = (*_AT, "demangledName", "shortName", "gridX", "gridY", "gridZ")
    for *at, whole, short, x, y, z in _timed(tables.rows(_KERNEL, wanted, _of(pid, tables, _KERNEL, "globalPid"))):
        name = texts.get(whole) or texts.get(short) or "kernel"
        yield _on_device("kernel", name, tuple(at), grid=[x, y, z] if min(map(_whole, (x, y, z))) >= 0 else None)


def _copies(tables: Tables, pid: int | None) -> Iterator[Row]:
    wanted = (*_AT, "bytes", "copyKind", "srcKind", "dstKind")
    for *at, size, kind, source, target in _timed(tables.rows(_MEMCPY, wanted, _of(pid, tables, _MEMCPY, "globalPid"))):
        name = f"Memcpy {_DIRECTIONS.get(kind, '')}".rstrip()
        if source in _MEMORY and target in _MEMORY:
            name = f"{name} ({_MEMORY[source]} -> {_MEMORY[target]})"
        yield _on_device("gpu_memcpy", name, tuple(at), bytes=_whole(size))
    of_memset = (*_AT, "bytes", "memKind")
    for *at, size, kind in _timed(tables.rows(_MEMSET, of_memset, _of(pid, tables, _MEMSET, "globalPid"))):
        name = f"Memset ({_MEMORY[kind]})" if kind in _MEMORY else "Memset"
        yield _on_device("gpu_memset", name, tuple(at), bytes=_whole(size))


def _graphs(tables: Tables, pid: int | None) -> Iterator[Row]:
    """Launches of CUDA graphs that were traced as a whole, nsys' default: one row each."""
    for *at, graph in _timed(tables.rows(_GRAPH, (*_AT, "graphId"), _of(pid, tables, _GRAPH, "globalPid"))):
        yield _on_device("kernel", f"CUDA graph {graph}", tuple(at))


def _calls(tables: Tables, texts: Mapping[int, str], pid: int | None) -> Iterator[Row]:
    """Calls of the CUDA runtime and driver: both are in this table."""
    wanted = ("start", "end", "globalTid", "correlationId", "nameId")
    condition = _of(pid, tables, _RUNTIME, "globalTid")
    for start, end, thread, correlation, name in _timed(tables.rows(_RUNTIME, wanted, condition)):
        called = _VERSION.sub("", texts.get(name, ""))
        yield _row("cuda_runtime", called, _thread(thread), start, end, RowArgs(correlation=_whole(correlation)))


def _ranges(tables: Tables, texts: Mapping[int, str], pid: int | None) -> Iterator[Row]:
    """NVTX ranges of one thread: ops where torch named them so, else annotations."""
    wanted = ("start", "end", "eventType", "globalTid", "endGlobalTid", "text", "textId")
    condition = _of(pid, tables, _RANGES, "globalTid")
    for start, end, kind, thread, end_thread, text, number in _timed(tables.rows(_RANGES, wanted, condition)):
        if kind not in _PUSHED and not (kind in _STARTED and end_thread in (None, 0, thread)):
            continue
        name = text if isinstance(text, str) and text else texts.get(number, "")
        op = _OP.match(name)
        raw = "cpu_op" if op else "user_annotation"
        yield _row(raw, op[1] if op else name, _thread(thread), start, end, None)


def _threads(tables: Tables, texts: Mapping[int, str], pid: int | None) -> Iterator[LabelRow]:
    for thread, name in tables.rows(
        "ThreadNames", ("globalTid", "nameId"), _of(pid, tables, "ThreadNames", "globalTid")
    ):
        if thread is not None and name in texts:
            yield LabelRow("thread_name", *_thread(thread), LabelArgs(texts[name]))


def _thread(global_id: int | None) -> tuple[int, int]:
    """pid and tid of a globalTid."""
    return (_pid(global_id), global_id & _MASK) if isinstance(global_id, int) else (0, 0)


def _lacks(tables: Tables) -> Iterator[Health]:
    said = "an Nsight Systems export: it has no shapes, dtypes or Python lines, so rules that need them are "
    yield Health("trace-format", "note", f"{said}skipped; `advisor run` records them")
    if not any(table in tables.columns for table in _ON_DEVICE):
        yield Health(
            "trace-device", "warning", "it contains no GPU work; profile with `nsys profile --trace=cuda,nvtx`"
        )
    if _GRAPH in tables.columns:
        text = "each CUDA graph launch is one row, so its kernels cannot be distinguished; "
        yield Health("trace-graphs", "note", f"{text}profile with `--cuda-graph-trace=node`")
