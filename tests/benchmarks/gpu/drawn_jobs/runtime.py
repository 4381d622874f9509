"""A host that calls a device's runtime, and streams that work off what it queued, as rows of Kineto.

From CUDA's documentation: a launch returns at once; work of one stream runs in order; a stream that waits for an event
goes on some µs after it; a copy to pageable memory, `cudaFree` and synchronisations return when the device is done; a
graph's kernels have its launch's correlation. All times vary by some percent, by chance. Shares no code with the
project, nor with the other generators.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

Row = dict[str, Any]
MAIN, COPIES, LINKS = 7, 13, 20
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
A100 = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0, "numSms": 108}
MI300 = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304}


class Span:
    """An op or annotation, with what it calls. A class: some hundred thousand are opened for a job."""

    __slots__ = ("args", "category", "name", "rt", "start", "us")

    def __init__(self, rt: Runtime, name: str, category: str, us: float, args: Row) -> None:
        self.rt, self.name, self.category, self.us, self.args = rt, name, category, us, args

    def __enter__(self) -> None:
        rt = self.rt
        self.args = rt.opened(self.args)
        self.start = rt.now
        rt.now += rt.vary(self.us) / 2

    def __exit__(self, *failed: object) -> None:
        rt, args = self.rt, self.args
        rt.now += rt.vary(self.us) / 2
        if not rt.shapes:
            args = {key: value for key, value in args.items() if not key.startswith("Input ")}
        rt.row(self.name, self.category, self.start, rt.now, **args)
        rt.closed()


class Runtime:
    """now: the host's time, µs;  free: when each stream is done with what was queued on it;  thread: whose rows are
    written.
    """

    thread = 1

    def __init__(self, device: Row, *, seed: int = 1, shapes: bool = True, rocm: bool = False) -> None:
        self.now, self.free, self.rows = 1_000_000.0, {MAIN: 0.0}, []
        self.device, self.shapes, self.prefix = device, shapes, "hip" if rocm else "cuda"
        self.draw, self.number, self.ends, self.head = random.Random(seed), 0, [], {}

    def vary(self, us: float, share: float = 0.03) -> float:
        """A time by chance."""
        return us * (1 + share * (2 * self.draw.random() - 1))

    def row(self, name: str, category: str, start: float, end: float, tid: int = 0, **args: Any) -> Row:
        """A row of the trace."""
        made = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 0 if category in _DEVICE else 4242,
            "tid": tid or self.thread,
            "ts": round(start, 3),
            "dur": round(end - start, 3),
            "args": {**self.usual(category), **args},
        }
        self.rows.append(made)
        return made

    def usual(self, category: str) -> Row:
        """What files say of each row of a category, before what is given of this one."""
        return {}

    def span(self, name: str, category: str = "cpu_op", *, us: float = 3, **args: Any) -> Span:
        """An op or annotation, with what it calls."""
        return Span(self, name, category, us, args)

    def opened(self, args: Row) -> Row:
        """An op or annotation begins: what is said of it."""
        return args

    def closed(self) -> None:
        """It ends."""

    @contextmanager
    def step(self) -> Iterator[None]:
        """One iteration."""
        with self.span(f"ProfilerStep#{self.number + 3}", "user_annotation", us=0):
            yield
        self.number += 1
        self.ends.append(max(self.now, *self.free.values()))

    def host(self, us: float) -> None:
        """Python that no row names."""
        self.now += self.vary(us, 0.1)

    def call(self, name: str, us: float = 4, *, until: float = 0, **args: Any) -> None:
        """A call of the runtime, which returns no earlier than at `until`."""
        start = self.now
        self.now = max(start + self.vary(us), until)
        self.row(self.prefix + name, "cuda_runtime", start, self.now, **args)

    def work(self, name: str, us: float, *, stream: int = MAIN, category: str = "kernel", call: str = "", **args: Any):
        """Queues work; returns when it ends."""
        correlation, called = len(self.rows) + 1, self.now
        self.call(call or "LaunchKernel", correlation=correlation)
        begin = max(called + self.vary(7, 0.2), self.free.get(stream, 0) + 1.2)
        end = begin + self.vary(us)
        ids = {"device": 0, "stream": stream, "correlation": correlation}
        self.row(name, category, begin, end, stream, **ids, **args)
        self.free[stream] = end
        return end

    def copy(self, nbytes: int, way: str = "HtoD", memory: str = "Pinned", *, stream: int = MAIN, waits: bool = False):
        """A copy of 20 GB/s."""
        name = f"Memcpy {way} ({memory} -> Device)" if way == "HtoD" else f"Memcpy {way} (Device -> {memory})"
        place = len(self.rows)
        end = self.work(name, 2 + nbytes / 20e3, stream=stream, category="gpu_memcpy", call="MemcpyAsync", bytes=nbytes)
        if waits or memory == "Pageable":
            call = self.rows[place]
            self.now = max(self.now, end + 3)
            call["dur"] = round(self.now - call["ts"], 3) if way == "DtoH" else call["dur"]
            self.call("StreamSynchronize", 3)
        return end

    def waits(self, stream: int, until: float) -> None:
        """The stream goes on after an event of another."""
        self.call("EventRecordWithFlags", 1)
        self.call("StreamWaitEvent", 1)
        self.free[stream] = max(self.free.get(stream, 0), until + self.vary(7, 0.4))

    def read(self, name: str = "aten::item") -> None:
        """`.item()`."""
        with self.span(name), self.span("aten::_local_scalar_dense"):
            self.copy(4, "DtoH", "Pageable")

    def trace(self) -> bytes:
        """The file."""
        return json.dumps(self.document()).encode()

    def document(self) -> Row:
        """What is in the file. Its rows are copies: what is written around them leaves the recorder's own alone."""
        rows = [{**row, "args": {**row["args"]}} for row in sorted(self.rows, key=itemgetter("ts"))]
        return {"schemaVersion": 1, "deviceProperties": [self.device], **self.head, "traceEvents": rows}

    def step_us(self) -> float:
        """Mean distance between the ends of the steps' work."""
        return (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1)


_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
