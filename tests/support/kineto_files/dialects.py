# ruff: noqa: E501 - rows are easier to compare on one line each
"""Generated traces as Kineto writes them, and what one odd file is.

Nothing is copied from a real trace. `text(rows)` writes rows as Kineto does; a `Variant` is a file with one oddity and the
outcome that the reader owes: `whole`, `repaired` (counted in health), `truncated`, or `refused` (one line that says what
the file is).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

Row = dict[str, Any]


BASE_NS = 1_700_000_000_000_000_000


DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}


def step_rows(number: int, at: float, era: str = "2.8") -> list[Row]:
    """One step of 100 µs: an annotation, an op with shapes, a launch, a kernel, a copy, a memset, flow arrows."""
    old = era == "1.8"
    cats = (
        {"op": "Operator", "run": "Runtime", "k": "Kernel", "c": "Memcpy", "s": "Memset"}
        if old
        else {"op": "cpu_op", "run": "cuda_runtime", "k": "kernel", "c": "gpu_memcpy", "s": "gpu_memset"}
    )
    external = "external id" if old else "External id"
    main, gpu = ("77", "stream 7") if old else (77, 7)
    host = {"pid": 42, "tid": main}
    device = {"pid": 0, "tid": gpu}
    place = {"device": 0, "context": 1, "stream": 7}
    n = number * 10
    rows: list[Row] = [
        {
            "ph": "X",
            "cat": "Operator" if old else "user_annotation",
            "name": f"ProfilerStep#{number}",
            **host,
            "ts": at,
            "dur": 100,
            "args": {external: n},
        },
        {
            "ph": "X",
            "cat": cats["op"],
            "name": "aten::linear",
            **host,
            "ts": at + 5,
            "dur": 40,
            "args": {"External id": n + 1, "Input Dims": [[8, 4], [4, 4], []], "Input type": ["float", "float", ""]},
        },
        {
            "ph": "X",
            "cat": cats["run"],
            "name": "cudaLaunchKernel",
            **host,
            "ts": at + 10,
            "dur": 5,
            "args": {external: n + 1, "cbid": 211, "correlation": n + 1},
        },
        {"ph": "s", "id": n + 1, **host, "ts": at + 10, "cat": "ac2g", "name": "ac2g"},
        {
            "ph": "X",
            "cat": cats["k"],
            "name": "void gemm<float, 4>(float*)",
            **device,
            "ts": at + 20,
            "dur": 30,
            "args": {external: n + 1, **place, "correlation": n + 1, "grid": [10, 2, 1], "block": [128, 1, 1]},
        },
        {"ph": "f", "id": n + 1, **device, "ts": at + 20, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {
            "ph": "X",
            "cat": cats["c"],
            "name": "Memcpy HtoD (Pageable -> Device)",
            **device,
            "ts": at + 60,
            "dur": 10,
            "args": {**place, "correlation": n + 2, "bytes": 4096},
        },
        {
            "ph": "X",
            "cat": cats["s"],
            "name": "Memset (Device)",
            **device,
            "ts": at + 70,
            "dur": 2,
            "args": {**place, "correlation": n + 3, "bytes": 64},
        },
    ]
    if not old:
        rows.append(
            {
                "ph": "X",
                "cat": "gpu_user_annotation",
                "name": f"ProfilerStep#{number}",
                **device,
                "ts": at + 20,
                "dur": 52,
                "args": {"External id": n},
            }
        )
    rows.append(
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            **host,
            "ts": at + 6,
            "args": {"Bytes": 512, "Total Allocated": 1024, "Total Reserved": 2048, "Device Id": 0, "Device Type": 1},
        }
    )
    if old:
        rows[-1].pop("cat")
    return rows


def rows(steps: int = 6, start: float = 1000.0, era: str = "2.8") -> list[Row]:
    """The rows of a small whole trace."""
    made = [row for number in range(steps) for row in step_rows(number, start + 110 * number, era)]
    names = [
        {"name": "thread_name", "ph": "M", "ts": start, "pid": 42, "tid": 77, "args": {"name": "thread 77 (python)"}}
    ]
    bars = [
        {
            "ph": "X",
            "cat": "Trace",
            "ts": start - 50,
            "dur": 5000,
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "name": "PyTorch Profiler (0)",
            "args": {"Op count": 0},
        },
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": start + 60_000},
    ]
    return made + names + bars


HEAD: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [
        {
            "id": 0,
            "name": "NVIDIA H100 80GB HBM3",
            "totalGlobalMem": 85017755648,
            "computeMajor": 9,
            "computeMinor": 0,
            "numSms": 132,
        }
    ],
    "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
    "record_shapes": 1,
    "baseTimeNanoseconds": BASE_NS,
}


def text(events: list[Row], head: dict[str, Any] | None = None, tail: dict[str, Any] | None = None) -> str:
    """A trace as Kineto lays it out: keys in its order, events over several lines."""
    top = "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in (HEAD if head is None else head).items())
    end = "".join(f',\n  "{key}": {json.dumps(value)}' for key, value in (tail or {"traceName": "t.json"}).items())
    return f'\n{{\n{top}  "traceEvents": [\n{",".join(map(_event, events))}\n  ]{end}\n}}\n'


def _event(row: Row) -> str:
    fields = json.dumps({key: value for key, value in row.items() if key != "args"})[1:-1]
    more = "" if "args" not in row else f',\n    "args": {json.dumps(row["args"])}'
    return f"\n  {{\n    {fields}{more}\n  }}"


@dataclass(frozen=True)
class Variant:
    """An odd file and the outcome owed. lost: complete events fewer than in the sound trace; health: ids that must be said."""

    number: str
    name: str
    data: bytes
    outcome: str = "whole"
    lost: int = 0
    health: tuple[str, ...] = ()
    says: str = ""
    file: str = "t.json"
    check: Callable[[Any], bool] | None = None


@cache
def good() -> str:
    """The sound trace that the variants are made from: 6 steps."""
    return text(rows())


def replaced(old: str, new: str, count: int = 1) -> bytes:
    source = good()
    assert old in source, old
    return source.replace(old, new, count).encode()
