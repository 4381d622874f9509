"""What the thirteenth set's jobs share: a device at its first use, two devices of one process, a job as one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kineto import inputs
from ..runtime import MAIN, Row
from ..twelfth_set.rows import Framed

SECOND = 107  # the other device's main stream, until it is written


class Fresh(Framed):
    """cold: kernels are loaded when they are first launched, memory is asked of the driver;  pool: MB left in it."""

    def __init__(self, device: Row, **options: Any) -> None:
        super().__init__(device, **options)
        self.cold, self.seen, self.pool = False, set[str](), 0.0

    def work(self, name: str, us: float, **given: Any) -> float:
        """Queues work; its first launch loads the kernel's module."""
        if not self.cold or given.get("category", "kernel") != "kernel" or name in self.seen:
            return super().work(name, us, **given)
        self.seen.add(name)
        product = any(part in name for part in ("gemm", "cutlass", "fprop", "dgrad", "wgrad"))
        self.call("GetSymbolAddress" if product else "FuncGetAttributes", 3)
        place, loads = len(self.rows), self.vary(3_400 if product else 420, 0.7)
        stream = given.get("stream", MAIN)
        self.free[stream] = max(self.free.get(stream, 0), self.now + loads)
        end = super().work(name, us, **given)
        call = next(row for row in self.rows[place:] if row["cat"] == "cuda_runtime" and "correlation" in row["args"])
        longer = loads + 3 - call["dur"]
        call["dur"] = round(loads + 3, 3)
        self.now += max(0, longer)
        return end

    def taken(self, mb: float) -> None:
        """Memory of the caching allocator, which asks the driver when it has none left."""
        if self.pool < mb:
            self.call("Malloc", self.vary(180 + mb, 0.4))
            self.pool += max(20.0, mb)
        self.pool -= mb

    def library(self, name: str, seconds: float) -> None:
        """A library's handle: cuBLAS or cuDNN is read from disk and asks for its workspace."""
        with self.span(name, us=20):
            self.now += self.vary(seconds * 1e6, 0.1)
            self.call("Malloc", 260)
            self.call("StreamIsCapturing", 2)
            self.call("FuncSetAttribute", 900)

    def context(self) -> None:
        """`model.to("cuda")`: the first call of the device."""
        with self.span("aten::to"), self.span("aten::_to_copy"), self.span("aten::empty_strided"):
            self.call("DeviceGetStreamPriorityRange", 2_150_000)
            self.call("Malloc", 240)


class Pair(Framed):
    """Two devices of one process;  at: whose work is queued."""

    at = 0

    def row(self, name: str, category: str, start: float, end: float, tid: int = 0, **args: Any) -> Row:
        """A row, on the device that is in use."""
        made = super().row(name, category, start, end, tid, **args)
        if category in ("kernel", "gpu_memcpy", "gpu_memset") and tid >= 100:
            made |= {"pid": 1, "tid": tid - 100}
            made["args"] |= {"device": 1, "stream": tid - 100}
        return made

    def work(self, name: str, us: float, **given: Any) -> float:
        """Queues work."""
        given["stream"] = given.get("stream", MAIN) + 100 * self.at
        return super().work(name, us, **given)


def as_graph(rt: Framed, job: Callable[[Framed], None], gap: float = 1.0) -> None:
    """The kernels of a job by one launch of a graph."""
    other = Framed(rt.device, seed=7)
    job(other)
    kernels = [row["dur"] for row in other.rows if row["cat"] == "kernel"]
    rt.call("GraphLaunch", 30 + len(kernels) / 10)
    rt.free[MAIN] = max(rt.now, rt.free[MAIN]) + sum(kernels) + gap * len(kernels)
    rt.queued.append(rt.free[MAIN])


def waited_copy(rt: Framed, nbytes: int, rate: float, dims: list[int], kind: str) -> None:
    """`.to(device)` of memory that is not pinned, on ROCm: one call that returns when all is there, GB/s."""
    with rt.span("aten::to", **inputs((dims,), kind)), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        place = len(rt.rows)
        end = rt.work("Memcpy HtoD (Host -> Device)", 4 + nbytes / rate / 1e3, category="gpu_memcpy",
                      call="MemcpyWithStream", bytes=nbytes)  # fmt: skip
        rt.now = max(rt.now, end + 6)
        rt.rows[place]["dur"] = round(rt.now - rt.rows[place]["ts"], 3)
