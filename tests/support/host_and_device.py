"""A host that launches and a device that works off its queue, as a trace: what a change gives is known by running it.

The little of CUDA that matters here, from its documentation: a launch returns at once, work of one stream runs in
order, a copy from the device to pageable memory returns when all that was queued before it is done, and so does
`cudaFree`. Shares no code with the project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
A100 = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0, "numSms": 108}
_CALL_US, _LATENCY_US = 5, 2


@dataclass
class Machine:
    """now: the host's time, µs;  free: when each stream is done with its queue."""

    now: float = 0
    free: dict[int, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    steps: int = 0

    def _row(self, name: str, category: str, start: float, end: float, thread: int = 1, **args: Any) -> None:
        kind = {"ph": "X", "cat": category, "name": name, "args": args}
        where = {"pid": 0 if category in ("kernel", "gpu_memcpy") else 1, "tid": thread}
        self.rows.append({**kind, **where, "ts": start, "dur": end - start})

    @contextmanager
    def step(self) -> Iterator[None]:
        """One iteration of the loop."""
        start = self.now
        yield
        self._row(f"ProfilerStep#{self.steps + 5}", "user_annotation", start, self.now)
        self.steps += 1

    @contextmanager
    def op(self, name: str, **args: Any) -> Iterator[None]:
        """An op with what it calls."""
        start = self.now
        self.now += 4
        yield
        self.now += 1
        self._row(name, "cpu_op", start, self.now, **args)

    def python(self, us: float) -> None:
        """The host does something that no row names."""
        self.now += us

    def call(self, name: str, us: float = _CALL_US, *, waits: bool = False) -> None:
        """A call of the driver."""
        start = self.now
        self.now = max(start + us, max(self.free.values(), default=0) if waits else 0)
        self._row(name, "cuda_runtime", start, self.now)

    def work(
        self, name: str, us: float, category: str = "kernel", call: str = "cudaLaunchKernel", **args: Any
    ) -> float:
        """A call that queues work; when that ends."""
        begin = max(self.now + _CALL_US + _LATENCY_US, self.free.get(7, 0) + 1)
        ids = {"correlation": len(self.rows) + 1}
        self._row(name, category, begin, begin + us, 7, device=0, stream=7, **ids, **args)
        self._row(call, "cuda_runtime", self.now, self.now + _CALL_US, **ids)
        self.now, self.free[7] = self.now + _CALL_US, begin + us
        return begin + us

    def read(self, nbytes: int = 4) -> None:
        """`.item()`: the copy returns when it is done, and with it all that was queued."""
        with self.op("aten::item"), self.op("aten::_local_scalar_dense"):
            start = self.now
            done = self.work("Memcpy DtoH (Device -> Pageable)", 2, "gpu_memcpy", "cudaMemcpyAsync", bytes=nbytes)
            self.rows[-1]["dur"] = done + 2 - start
            self.now = done + 2
            self.call("cudaStreamSynchronize", 2)

    def layers(self, count: int, us: float) -> None:
        """A forward and a backward pass: an op and a node for each layer."""
        for number in range(count):
            with self.op("aten::addmm", **{"Sequence number": number}):
                self.work("ampere_bf16_s16816gemm_bf16_128x128_tn", us)
        for number in reversed(range(count)):
            with self.op("autograd::engine::evaluate_function: AddmmBackward0", **{"Sequence number": number}):
                self.work("ampere_bf16_s16816gemm_bf16_128x128_nt", us)

    def trace(self, **head: Any) -> bytes:
        """The file."""
        rows = sorted(self.rows, key=lambda row: row["ts"])
        return json.dumps({"deviceProperties": [A100], **head, "traceEvents": rows}).encode()

    def step_us(self) -> float:
        """From the end of the first step's work to that of the last, for each step between: both have launched all."""
        ends, works = [], [row for row in self.rows if row["cat"] in ("kernel", "gpu_memcpy")]
        calls = {row["args"].get("correlation"): row for row in self.rows if row["cat"] == "cuda_runtime"}
        for step in (row for row in self.rows if row["name"].startswith("ProfilerStep#")):
            mine = [
                work["ts"] + work["dur"]
                for work in works
                if 0 <= calls[work["args"]["correlation"]]["ts"] - step["ts"] < step["dur"]
            ]
            ends.append(max(mine))
        return (ends[-1] - ends[0]) / (len(ends) - 1)
