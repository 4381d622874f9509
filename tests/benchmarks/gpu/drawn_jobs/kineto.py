"""Rows with all that files of Kineto hold: ids of threads, shapes with strides, numbers of events, arrows to backward.

After the files of torch 2.1 to 2.7 that others recorded: an op holds the ops that it calls, cuBLAS asks for occupancy
before it launches, HIP's calls say the kernel, its work only the stream, and a copy that waits is one call there.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .arrowed import Arrowed
from .runtime import MAIN, Row
from .seventh_set import NODE

PYTHON, AUTOGRAD = 4242, 4391
_LAUNCHED = ("kernel", "gpu_memcpy", "gpu_memset")
_PRODUCTS = ("gemm", "nvjet", "fprop", "dgrad", "wgrad", "Cijk")

Kernels = tuple[tuple[str, float], ...]


class Kineto(Arrowed):
    """An op by its names, outermost first, with the kernels of the innermost."""

    sequence = 0

    def op(self, *names: str, run: Kernels = (), dims: tuple[Any, ...] = (), kind: str = "float", **more: Any) -> int:
        """Returns its number in the graph.  graph: whether it has one;  gap: Python before it, µs;  us: of each op."""
        if more.pop("graph", False):
            self.sequence += 1
            more |= {"Sequence number": self.sequence, "Fwd thread id": 0}
        self.host(more.pop("gap", 6))
        us, args = more.pop("us", 4), {**inputs(dims, kind), **more}
        self._inside(list(names), us, args, run)
        return self.sequence

    def _inside(self, names: list[str], us: float, args: Row, run: Kernels) -> None:
        with self.span(names[0], us=us, **args):
            if names[1:]:
                self._inside(names[1:], us, args, run)
                return
            for name, lasts in run:
                if self.prefix == "cuda" and _is_product(name):
                    self.call("OccupancyMaxActiveBlocksPerMultiprocessor", 0.8)
                self.work(name, lasts)

    def grad(self, name: str, number: int, *inner: str, run: Kernels = (), **more: Any) -> None:
        """A node of the backward pass."""
        args = {"Sequence number": number, "Fwd thread id": 1}
        with self.span(NODE + name, us=5, **args), self.span(name, us=3, **args):
            self.op(*(inner or ("aten::mul",)), run=run, gap=1, **more)

    def accumulated(self) -> None:
        """A gradient that becomes `.grad`."""
        name = "torch::autograd::AccumulateGrad"
        with self.span(NODE + name, us=3), self.span(name, us=2), self.span("aten::detach", us=1):
            pass

    def wait(self, name: str = "DeviceSynchronize") -> None:
        """`torch.cuda.synchronize()`."""
        self.call(name, 5, until=max(self.free.values()) + 4)

    def moved(self, nbytes: int, rate: float, dims: list[int], kind: str = "float") -> None:
        """`.to(device)` of memory that is not pinned, GB/s: PyTorch waits for the stream after it."""
        with self.span("aten::to", **inputs((dims,), kind)), self.span("aten::_to_copy"), self.span("aten::copy_"):
            place = len(self.rows)
            end = self.work("Memcpy HtoD (Pageable -> Device)", 1 + nbytes / rate / 1e3, category="gpu_memcpy",
                            call="MemcpyAsync", bytes=nbytes)  # fmt: skip
            if nbytes > 65_536:
                self.rows[place]["dur"] = round(end + 2 - self.rows[place]["ts"], 3)
                self.now = end + 2
            self.call("StreamSynchronize", 3, until=end + 3)

    def value(self, outer: str = "aten::item", memory: str = "Pageable") -> None:
        """A value of the device that Python reads."""
        names = (outer, *(("aten::item",) if outer == "aten::is_nonzero" else ()), "aten::_local_scalar_dense")
        with self.span(names[0]), self.span(names[1]), self.span(names[-1]):
            if self.prefix == "cuda":
                self.copy(4, "DtoH", memory, waits=True)
                return
            place = len(self.rows)
            end = self.work("Memcpy DtoH (Device -> Host)", 3, category="gpu_memcpy", call="MemcpyWithStream", bytes=4)
            self.now = end + 9
            self.rows[place]["dur"] = round(self.now - self.rows[place]["ts"], 3)

    def document(self) -> Row:
        """What is in the file."""
        known = super().document()
        rows = known["traceEvents"]
        last = max(row["ts"] + row.get("dur", 0) for row in rows if row["ph"] == "X")
        ops = [row for row in rows if row.get("cat") in ("cpu_op", "user_annotation")]
        for number, row in enumerate(ops):
            row["args"] |= {"Record function id": 0, "Ev Idx": number}
        arrows = list(_to_backward(ops))
        for row in [*rows, *arrows]:
            self._as_on_disk(row)
        name, pid = self.prefix + "DeviceSynchronize", PYTHON
        waits = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": pid, "tid": PYTHON, "ts": last - 40, "dur": 60}
        begin = {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "ts": rows[0]["ts"]}
        known["traceEvents"] = [*rows, *arrows, waits | {"args": {"cbid": 165, "correlation": 9_000_001}},
                                begin | {"tid": "Trace PyTorch Profiler"}]  # fmt: skip
        return known | {"trace_id": "5D0A71F2", "with_stack": 0, "profile_memory": 0}

    def _as_on_disk(self, row: Row) -> None:
        if row["pid"] == PYTHON:
            row["tid"] = {1: PYTHON, 2: AUTOGRAD}.get(row["tid"], row["tid"])
        if row.get("name") == "cudacuLaunchKernel":
            row |= {"name": "cuLaunchKernel", "cat": "cuda_driver"}
            row["args"]["cbid"] = 307
        if self.prefix == "hip" and row["pid"] == 0 and row["tid"] == MAIN:
            row |= {"tid": 0, "pid": 2}
        if self.prefix == "hip" and row.get("cat") in _LAUNCHED:
            stream = 0 if row["args"]["stream"] == MAIN else row["args"]["stream"]
            row["args"] = {"device": 2, "stream": stream, "correlation": row["args"]["correlation"],
                           "kind": "Dispatch Kernel"}  # fmt: skip


@cache
def _is_product(kernel: str) -> bool:
    return any(part in kernel for part in _PRODUCTS)


def inputs(dims: tuple[Any, ...], kind: str) -> Row:
    """What `record_shapes` adds."""
    if not dims:
        return {}
    sizes = [list(size) for size in dims]
    strides = [_strides(size) for size in sizes]
    return {"Input Dims": sizes, "Input Strides": strides, "Input type": [kind] * len(sizes),
            "Concrete Inputs": [""] * len(sizes)}  # fmt: skip


def _strides(size: list[int]) -> list[int]:
    found = [1]
    for one in reversed(size[1:]):
        found.insert(0, found[0] * one)
    return found[: len(size)]


def _to_backward(ops: list[Row]) -> list[Row]:
    """Arrows from an op to its node."""
    first = {row["args"]["Sequence number"]: row for row in reversed(ops) if "Sequence number" in row["args"]}
    nodes = [row for row in ops if "Fwd thread id" in row["args"] and row["name"].startswith(NODE)]
    found = []
    for number, node in enumerate(nodes, 1):
        ends = (("s", first[node["args"]["Sequence number"]], {}), ("f", node, {"bp": "e"}))
        found += [{"ph": ph, "id": number, "pid": PYTHON, "tid": at["tid"], "ts": at["ts"], "cat": "fwdbwd",
                   "name": "fwdbwd", **more} for ph, at, more in ends]  # fmt: skip
    return found


def device(name: str, capability: tuple[int, int], sms: int, gib: int) -> Row:
    """A device as files describe it."""
    return {
        "id": 0, "name": name, "totalGlobalMem": gib << 30, "computeMajor": capability[0], "warpSize": 32,
        "computeMinor": capability[1], "numSms": sms, "maxThreadsPerBlock": 1024, "regsPerBlock": 65536,
        "maxThreadsPerMultiprocessor": 1536, "sharedMemPerBlock": 49152,
    }  # fmt: skip


A100 = device("NVIDIA A100-SXM4-80GB", (8, 0), 108, 79)
H100 = device("NVIDIA H100 80GB HBM3", (9, 0), 132, 79)
RTX4090 = device("NVIDIA GeForce RTX 4090", (8, 9), 128, 24)
RTX3090 = device("NVIDIA GeForce RTX 3090", (8, 6), 82, 24)
A10G = device("NVIDIA A10G", (8, 6), 80, 22)
L4 = device("NVIDIA L4", (8, 9), 58, 22)
T4 = device("Tesla T4", (7, 5), 40, 15)
V100 = device("Tesla V100-SXM2-32GB", (7, 0), 80, 32)
MI300X = device("AMD Instinct MI300X", (9, 4), 304, 192)
