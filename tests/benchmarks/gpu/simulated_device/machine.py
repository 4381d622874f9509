"""One host thread, streams, the queue between them, and calls that block. All times in µs.

With `costs` of the profiler the same walk takes what recording adds to the host; kernels take what they take. Rows are
kept only while `recording` is set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .devices import Costs, Device
from .kernels import Kernel

STREAM = 7
Meeting = Callable[[float], float]


@dataclass
class Machine:
    """The state: the host's clock, the end of the stream's work, what is queued; and the rows that were written.

    row_us    what the profiler adds to a row of an op; call_us: what CUPTI adds to a runtime call; 0 without them
    """

    device: Device
    costs: Costs
    row_us: float = 0.0
    call_us: float = 0.0
    cold: bool = False  # nothing has come up yet: the first call pays for it
    now: float = 0.0
    stream: int = STREAM  # that launches go to
    ends: dict[int, float] = field(default_factory=dict)  # of each stream's work
    recording: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    thread: Any = 1
    kernel_us: float = 0.0  # all that was launched, recorded or not
    queue: deque[float] = field(default_factory=deque)
    correlation: int = 0
    external: int = 0
    open_ops: list[int] = field(default_factory=list)
    needs_bytes: int = 0  # what tensors take at most
    started: bool = False
    loaded: set[str] = field(default_factory=set)

    @property
    def stream_end(self) -> float:
        """The end of the work of the stream that launches go to."""
        return self.ends.get(self.stream, 0.0)

    @stream_end.setter
    def stream_end(self, us: float) -> None:
        self.ends[self.stream] = us

    # ----- the host

    def host(self, us: float) -> None:
        """The host works."""
        self.now += us

    def begin(self, name: str, category: str, args: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A row begins: the profiler notes it, then its time starts."""
        self.now += 0.6 * self.row_us
        self.external += 1
        row = {"ph": "X", "cat": category, "name": name, "tid": self.thread, "ts": self.now, "args": dict(args)}
        row["args"]["External id"] = self.external
        self.open_ops.append(self.external)
        if self.recording:
            self.rows.append(row)
        return self.external, row

    def end(self, row: dict[str, Any]) -> None:
        """It ends: its time stops, then the profiler notes it."""
        row["dur"] = self.now - row["ts"]
        self.open_ops.pop()
        self.now += 0.4 * self.row_us

    def call(self, name: str, us: float, cbid: int, started: float | None = None) -> int:
        """A runtime call of `us`; its correlation id. started: of a call that began earlier, and blocked."""
        self.correlation += 1
        begun = self.now if started is None else started
        self.now = max(self.now, begun) + us + self.call_us
        if self.recording:
            args = {"External id": self._op(), "cbid": cbid, "correlation": self.correlation}
            self.rows.append(
                {
                    "ph": "X",
                    "cat": "cuda_runtime",
                    "name": name,
                    "tid": self.thread,
                    "ts": begun,
                    "dur": self.now - begun,
                    "args": args,
                }
            )
        return self.correlation

    def _op(self) -> int:
        return self.open_ops[-1] if self.open_ops else 0

    # ----- launches

    def _enqueue(self) -> None:
        """A place in the queue: the host waits for the oldest launch where all are taken."""
        if self.cold and not self.started:
            self._start_up()
        while self.queue and self.queue[0] <= self.now:
            self.queue.popleft()
        if len(self.queue) >= self.costs.queue:
            self.now = max(self.now, self.queue.popleft())

    def _work(self, called: float, us: float) -> float:
        """Work of the stream; when it starts. called: when the call for it began."""
        start = max(called + self.costs.latency_us, self.stream_end + self.costs.between_us)
        self.stream_end = start + us
        self.queue.append(self.stream_end)
        return start

    def launch(self, kernel: Kernel) -> None:
        """A kernel."""
        began = self.now
        self._enqueue()
        first = 0.0
        if self.cold and kernel.name not in self.loaded:
            first = self.costs.first_launch_us
        self.loaded.add(kernel.name)
        number = self.call("cudaLaunchKernel", self.costs.launch_us + first, 211, began)
        start = self._work(self.now - self.costs.launch_us - self.call_us, kernel.us)
        self.kernel_us += kernel.us
        if self.recording:
            args = {
                "External id": self._op(),
                "queued": 0,
                "device": 0,
                "context": 1,
                "stream": self.stream,
                "correlation": number,
                "registers per thread": 32,
                "shared memory": 0,
                "blocks per SM": round(kernel.blocks / self.device.multiprocessors, 6),
                "warps per SM": round(4 * kernel.blocks / self.device.multiprocessors, 6),
                "grid": [kernel.blocks, 1, 1],
                "block": [128, 1, 1],
                "est. achieved occupancy %": 0,
            }
            self._device_row("kernel", kernel.name, start, kernel.us, args)

    def _device_row(self, category: str, name: str, start: float, us: float, args: dict[str, Any]) -> None:
        self.rows.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 0,
                "tid": self.stream,
                "ts": start,
                "dur": us,
                "args": args,
            }
        )

    # ----- streams and collectives

    def wait_for(self, stream_end: float) -> None:
        """The stream does nothing before that time: an event of another stream."""
        self.call("cudaStreamWaitEvent", self.costs.event_us, 147)
        self.stream_end = max(self.stream_end, stream_end)

    def collective(self, name: str, stream: int, meet: Meeting, args: dict[str, Any]) -> float:
        """A kernel that ends on all ranks at once, on a stream that waits for this one; when it ends.

        `meet` is told when this rank's kernel starts, and answers when that of all ranks ends.
        """
        began, here = self.now, self.stream
        self._enqueue()
        if stream != here:
            self.call("cudaEventRecord", self.costs.event_us, 135)
            self.call("cudaStreamWaitEvent", self.costs.event_us, 147)
        number = self.call("cudaLaunchKernelExC", self.costs.launch_us, 430, max(began, self.now))
        behind = max(self.stream_end, self.ends.get(stream, 0.0))
        start = max(self.now + self.costs.latency_us, behind + self.costs.between_us)
        end = meet(start)
        self.stream = stream
        self.stream_end = end
        self.queue.append(end)
        if self.recording:
            row = {"device": 0, "context": 1, "stream": stream, "correlation": number, "External id": self._op()}
            shape = {"grid": [24, 1, 1], "block": [544, 1, 1]}
            self._device_row("kernel", name, start, end - start, {**row, **shape, **args})
        self.stream = here
        return end

    # ----- copies and waits

    def copy(self, way: str, count: int, *, pinned: bool, blocking: bool) -> None:
        """A copy between host and device: `h2d` or `d2h`.

        The driver stages pageable memory: up to 64 KiB it takes at once, of more it waits for the stream and for the
        staging (CUDA, API synchronization behavior). To pageable host memory the call returns when the bytes are there.
        `blocking`: PyTorch synchronises the stream after it.
        """
        began = self.now
        self._enqueue()
        us = self.costs.copy_call_us
        rate = self.device.pinned_gbs if pinned else self.device.pageable_gbs
        lasts = 1.0 + count / rate / 1e3
        if not pinned and way == "h2d" and count <= self.costs.staged_bytes:
            us += count / self.costs.staging_gbs / 1e3
            lasts = 1.0 + count / self.device.pinned_gbs / 1e3
            start = self._work(began, lasts)
        elif pinned:
            start = self._work(began, lasts)
        else:
            self.now = max(self.now, self.stream_end)
            start = self._work(self.now, lasts)
            self.now = max(self.now, self.stream_end)
        number = self.call("cudaMemcpyAsync", us, 41, began)
        self.kernel_us += lasts
        if self.recording:
            host = "Pinned" if pinned else "Pageable"
            name = f"Memcpy HtoD ({host} -> Device)" if way == "h2d" else f"Memcpy DtoH (Device -> {host})"
            self._copy_row(name, start, lasts, number, count)
        if blocking:
            self.synchronize()

    def copy_inside(self, count: int) -> None:
        """A copy from memory of the device to memory of the device: read and written once."""
        self._enqueue()
        began = self.now
        number = self.call("cudaMemcpyAsync", self.costs.launch_us, 41)
        lasts = 1.5 + 2 * count / (self.device.memory_gbs * self.device.share_of_memory) / 1e3
        start = self._work(began, lasts)
        self.kernel_us += lasts
        if self.recording:
            self._copy_row("Memcpy DtoD (Device -> Device)", start, lasts, number, count)

    def _copy_row(self, name: str, start: float, lasts: float, number: int, count: int) -> None:
        args = {
            "External id": self._op(),
            "device": 0,
            "context": 1,
            "stream": self.stream,
            "correlation": number,
            "bytes": count,
            "memory bandwidth (GB/s)": count / (lasts * 1e3),
        }
        self._device_row("gpu_memcpy", name, start, lasts, args)

    def synchronize(self, name: str = "cudaStreamSynchronize", cbid: int = 131) -> None:
        """The host waits until the stream is empty, or all are."""
        began = self.now
        end = self.stream_end if name == "cudaStreamSynchronize" else max(self.ends.values(), default=0.0)
        if end > self.now:
            self.now = end + self.costs.wake_us
        self.queue.clear()
        number = self.call(name, self.costs.sync_call_us, cbid, began)
        if self.recording:
            kind = "Stream Sync" if name == "cudaStreamSynchronize" else "Context Sync"
            args = {
                "cuda_sync_kind": kind,
                "stream": self.stream if kind == "Stream Sync" else -1,
                "correlation": number,
                "device": 0,
                "context": 1,
            }
            self._device_row("cuda_sync", kind, began, self.now - began, args)

    def _start_up(self) -> None:
        """The context and the libraries come up; the caching allocator takes blocks from the driver, which it keeps."""
        self.started = True
        self.call("cudaFree", self.costs.context_us, 22)
        self.call("cudaFree", self.costs.library_us, 22)
        for _ in range(1 + self.needs_bytes // self.costs.segment_bytes):
            self.call("cudaMalloc", self.costs.malloc_us, 20)
