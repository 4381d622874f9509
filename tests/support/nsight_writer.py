"""SQLite files as `nsys export` makes them: its tables and the columns that matter, some left out at will."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from device_loops import Loop

EPOCH = 1_760_000_000_000_000_000
PID, TID = 4711, 4712
VERSIONS = {"cudaLaunchKernel": "_v7000", "cudaMemcpyAsync": "_v3020", "cudaMemsetAsync": "_ptsz_v7000"}


def global_id(pid: int, tid: int = 0) -> int:
    """As the export writes processes and threads: of machine 1, hardware 2."""
    return 1 << 56 | 2 << 48 | pid << 24 | tid


class Export:
    """Tables that grow; `write` makes the file."""

    def __init__(self) -> None:
        self.tables: dict[str, tuple[str, list[tuple[Any, ...]]]] = {}
        self._texts: dict[str, int] = {}

    def text(self, value: str) -> int:
        """The number of a text in StringIds."""
        return self._texts.setdefault(value, len(self._texts) + 1)

    def add(self, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows of a table."""
        self.tables.setdefault(table, (columns, []))[1].extend(rows)

    def write(self, path: Path) -> Path:
        """The file."""
        self.add("StringIds", "id INTEGER PRIMARY KEY, value TEXT", [(at, text) for text, at in self._texts.items()])
        with closing(sqlite3.connect(path)) as base, base:
            for table, (columns, rows) in self.tables.items():
                base.execute(f"CREATE TABLE {table} ({columns})")
                base.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * (columns.count(',') + 1))})", rows)
        return path


def export(one: Loop, pid: int = PID) -> Export:
    """The loop as a profile of CUDA and NVTX of one process."""
    made = Export()
    add_loop(made, one, pid)
    made.add("TARGET_INFO_SESSION_START_TIME", "utcEpochNs INTEGER, utcTime TEXT", [(EPOCH, "")])
    gpu = "id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER"
    made.add("TARGET_INFO_GPU", gpu, [(0, "NVIDIA H100 80GB HBM3", 85_000_000_000, 132, 9, 0)])
    made.add("ThreadNames", "nameId INTEGER, globalTid INTEGER", [(made.text("python"), global_id(pid, TID))])
    return made


def add_loop(made: Export, one: Loop, pid: int) -> None:
    """Work, calls and ranges of one process."""
    at = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER"
    of = global_id(pid)
    for work in one.works:
        row = (work.start, work.end, 0, work.stream, work.correlation, of)
        if work.kind == "kernel":
            names = (made.text(work.name), made.text(work.name.split("<")[0]))
            columns = f"{at}, demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER"
            made.add("CUPTI_ACTIVITY_KIND_KERNEL", columns, [(*row, *names, 16, 2, 1)])
        elif work.kind == "memcpy":
            columns = f"{at}, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER"
            made.add("CUPTI_ACTIVITY_KIND_MEMCPY", columns, [(*row, work.bytes, 1, 0, 2)])
        else:
            made.add("CUPTI_ACTIVITY_KIND_MEMSET", f"{at}, bytes INTEGER, memKind INTEGER", [(*row, work.bytes, 2)])
    thread = global_id(pid, TID)
    made.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER",
        [
            (call.start, call.end, thread, call.correlation, made.text(call.name + VERSIONS.get(call.name, "_v3020")))
            for call in one.calls
        ],
    )
    made.add(
        "NVTX_EVENTS",
        "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, "
        "endGlobalTid INTEGER",
        [
            *((step.start, step.end, 59, None, made.text(step.name), thread, None) for step in one.steps),
            (one.steps[0].start, None, 34, "a mark", None, thread, None),
            (one.steps[0].start, one.steps[0].start + 9, 59, "aten::mm, seq = 3, op_id = 9", None, thread, None),
        ],
    )
