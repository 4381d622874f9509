"""A trace as Kineto's JSON again: for tools that read files only."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.trace.events import Category, Trace

_RAW = {
    Category.CPU_OP: "cpu_op",
    Category.ANNOTATION: "user_annotation",
    Category.PYTHON: "python_function",
    Category.RUNTIME: "cuda_runtime",
    Category.KERNEL: "kernel",
    Category.MEMCPY: "gpu_memcpy",
    Category.MEMSET: "gpu_memset",
    Category.DEVICE_ANNOTATION: "gpu_user_annotation",
    Category.SYNC: "cuda_sync",
    Category.OVERHEAD: "overhead",
    Category.OTHER: "Trace",
    Category.FOREIGN_DEVICE: "foreign_device",
}
_ARGS = {
    "external_id": "External id",
    "correlation": "correlation",
    "device": "device",
    "stream": "stream",
    "bytes": "bytes",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "python_id": "Python id",
    "python_parent": "Python parent id",
}


def write_json(trace: Trace, path: Path, base_ns: int | None = None) -> None:
    """Writes the rows in today's spelling, gzipped. Times are µs from `base_ns` (default: the first row)."""
    base = base_ns if base_ns is not None else int(trace.events.start_ns.min()) if len(trace.events) else 0
    base -= base % 1000  # a whole µs, so that a tool that rounds to µs rounds as it would have
    head: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": base, "displayTimeUnit": "ms"}
    if trace.meta.rank is not None:
        head["distributedInfo"] = {
            "backend": trace.meta.backend,
            "rank": trace.meta.rank,
            "world_size": trace.meta.world_size or 1,
        }
    with gzip.open(path, "wt", 1, encoding="utf-8") as file:
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        for number, row in enumerate(_rows(trace, base)):
            file.write((",\n" if number else "") + json.dumps(row))
        file.write("\n]}\n")


def _rows(trace: Trace, base: int) -> Iterator[dict[str, Any]]:
    events = trace.events
    columns = {key: getattr(events, name).tolist() for name, key in _ARGS.items()}
    # Only the product of the grid's sides is kept.
    columns["grid"] = [[blocks, 1, 1] if blocks != -1 else -1 for blocks in events.blocks.tolist()]
    texts = {
        "Input Dims": (events.dims.tolist(), events.dims_table),
        "Input type": (events.dtypes.tolist(), events.dtypes_table),
        "Input Strides": (events.strides.tolist(), events.strides_table),
        "Concrete Inputs": (events.values.tolist(), events.values_table),
    }
    for row, (start, dur, name, kind, thread) in enumerate(
        zip(
            *(column.tolist() for column in (events.start_ns, events.dur_ns, events.name, events.category)),
            events.thread.tolist(),
            strict=True,
        )
    ):
        args: dict[str, Any] = {key: values[row] for key, values in columns.items() if values[row] != -1}
        if kind == Category.DEVICE_ANNOTATION:
            # Kineto states no stream for these; a row with one is taken for device work.
            args.pop("stream", None)
        args |= {key: _json(table[column[row]]) for key, (column, table) in texts.items() if column[row] >= 0}
        place = events.threads[thread]
        yield {
            "ph": "X",
            "cat": _RAW[Category(kind)],
            "name": events.names[name],
            "pid": _number(place.pid),
            "tid": _number(place.tid),
            "ts": (start - base) / 1000,
            "dur": dur / 1000,
            "args": args,
        }


def _json(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text


def _number(label: str) -> int | str:
    text = label.removeprefix("stream ")
    return int(text) if text.lstrip("-").isdecimal() else label
