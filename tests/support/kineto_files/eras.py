"""The schema of each torch version and each kind of device, as the profiler writes it: one small generated trace each.

`DIALECTS` lists them with what must be read from them. All hold the same six steps; what differs is how rows are spelt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import kineto_files.dialects as made
from kineto_files.dialects import Row

STEPS = 6
SINCE_1970_US = 1_623_142_623_460_111
_NO_BASE = {key: value for key, value in made.HEAD.items() if key != "baseTimeNanoseconds"}


@dataclass(frozen=True)
class Dialect:
    """A way to write the same six steps.

    kind      what kind of device must be recognised
    works     device rows (kernels, copies, memsets) of a step; none where the accelerator's rows cannot be told apart
    linked    of them, those whose launch is in the trace
    """

    name: str
    data: bytes
    kind: str = "cuda"
    works: int = 3
    linked: int = 1
    names: tuple[str, ...] = field(default=())


def _changed(change: Callable[[Row], Row | Iterable[Row] | None], rows: list[Row]) -> list[Row]:
    """Each row as `change` makes it: another row, several, or (None) the same."""
    found: list[Row] = []
    for row in rows:
        new = change(row)
        found += [row] if new is None else [new] if isinstance(new, dict) else list(new)
    return found


def _args(row: Row, **more: Any) -> Row:
    return {**row, "args": {**row.get("args", {}), **more}}


def _on_device(row: Row) -> bool:
    return row.get("cat") in made.DEVICE


def _text(rows: list[Row], head: dict[str, Any] | None = None, tail: dict[str, Any] | None = None) -> bytes:
    return made.text(rows, head, tail).encode()


def _torch_1_10(row: Row) -> Row | None:
    """Operators are in small letters already, the device's categories are not; iterations stand on each row."""
    old = {
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "gpu_memset": "Memset",
        "cuda_runtime": "Runtime",
        "user_annotation": "cpu_op",
    }
    if row.get("cat") == "gpu_user_annotation":
        return {**row, "cat": "user_annotation", "tid": "stream 7 annotations"}
    if row.get("cat") not in (*old, "cpu_op"):
        return None
    more = {"Trace name": "PyTorch Profiler", "Trace iteration": 0}
    row = _args(row, **more)
    return {**row, "cat": old.get(row["cat"], row["cat"]), **({"tid": "stream 7"} if _on_device(row) else {})}


def _torch_1_12(row: Row) -> Row | None:
    """Small letters everywhere, `External id` 0 where there is none, arrows of the old names."""
    if row.get("ph") in ("s", "f"):
        return {**row, "name": "async_gpu", "cat": "async_cpu_to_gpu", "bp": "e"}
    if row.get("ph") != "X" or row.get("cat") == "Trace":
        return None
    return _args(row, **{"External id": row.get("args", {}).get("External id", 0), "Profiler Event Index": 3})


def _torch_2_1(row: Row) -> Row | Iterable[Row] | None:
    """Launches of Triton kernels through the driver, and rows of what the host waited for."""
    if row.get("name") == "cudaLaunchKernel":
        waits = {"cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 7, "dur": 1}
        stated = {"stream": 7, "wait_on_stream": 16, "wait_on_cuda_event_record_corr_id": 5, "device": 0}
        return [{**row, "cat": "cuda_driver", "name": "cuLaunchKernel"}, {**row, **waits, "args": stated}]
    return None


def _torch_2_4(row: Row) -> Row | None:
    if row.get("cat") == "cpu_op":
        more = {"Input Strides": [[4, 1], [4, 1], []], "Concrete Inputs": ["", "", "0"], "Record function id": 0}
        return _args(row, **more, **{"Ev Idx": 3, "kernel_backend": "triton", "kernel_file": "/x/y.py"})
    return None


def _torch_2026(row: Row) -> Iterable[Row] | None:
    """Sequence numbers and ids of communicators beyond 64 bits, counters, event rows, syncs on rows of their own."""
    if row.get("cat") != "kernel":
        return None
    stated = {
        "Collective name": "allreduce",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "Group size": 2,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1, ...",
        "Seq": 4,
        "Comms Id": 2**70,
    }
    at = {"ts": row["ts"], "pid": 0}
    return [
        _args({**row, "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"}, **stated),
        {"ph": "C", "name": "GPU 0 Counters", "tid": "GPU 0 Counters", **at, "args": {"sm__cycles": 1.5}},
        {"ph": "X", "cat": "cuda_event", "name": "Event Record", "tid": 7, **at, "dur": 0, "args": {"stream": 7}},
        {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "tid": 1007, **at, "dur": 9, "args": {"stream": 7}},
    ]


def _rocm(row: Row) -> Row | None:
    """CUDA's categories, HIP's names; device numbers start at 2; copies tell neither bytes nor pinned memory."""
    if row.get("cat") == "cuda_runtime":
        args = {key: value for key, value in row["args"].items() if key != "cbid"}
        return {**row, "name": "hipExtModuleLaunchKernel", "args": {**args, "cid": 106, "grid": [10, 2, 1]}}
    if row.get("cat") == "kernel":
        args = {"External id": row["args"]["External id"], "device": 2, "stream": 0, "kind": "Dispatch Kernel"}
        return {
            **row,
            "pid": 2,
            "tid": 0,
            "args": {**args, "correlation": row["args"]["correlation"], "hsa_queue": "0x7"},
        }
    if row.get("cat") == "gpu_memcpy":
        args = {"device": 2, "stream": 0, "correlation": row["args"]["correlation"], "kind": "HtoD"}
        return {**row, "pid": 2, "tid": 0, "name": "Memcpy HtoD (Host -> Device)", "args": args}
    return {**row, "pid": 2} if row.get("pid") == 0 else None


def _xpu(row: Row) -> Row | Iterable[Row] | None:
    """Own categories of calls; kernels say neither stream nor grid; what draws the device's scopes is no work."""
    if row.get("cat") == "cuda_runtime":
        wait = {**row, "cat": "xpu_sync", "name": "urEventWait"}
        return [{**row, "cat": "xpu_runtime", "name": "urEnqueueKernelLaunchWithArgsExp"}, wait]
    if _on_device(row):
        args = {key: value for key, value in row["args"].items() if key in ("correlation", "External id", "device")}
        work = {**row, "args": {**args, "sycl queue": "0x1", "l0 queue": "0x2", "kernel_id": 5}}
        return [work, {**work, "cat": "xpu_scope_profiler", "ts": row["ts"] - 1, "dur": row["dur"] + 2}]
    return None


def _mtia(row: Row) -> Row | None:
    if row.get("cat") == "cuda_runtime":
        return {**row, "cat": "mtia_runtime", "name": "runFunction - job_prep_and_submit_for_execution"}
    if _on_device(row):
        return {**row, "cat": "mtia_ccp_events", "name": "dma_request", "args": {"size": 64, "wait_on_stream": 3}}
    return {**row, "cat": "mtia_insight"} if row.get("cat") == "gpu_user_annotation" else None


def _hpu(row: Row) -> Row | Iterable[Row] | None:
    if row.get("cat") == "cuda_runtime" or row.get("cat") == "gpu_user_annotation":
        return ()
    return {**row, "cat": "hpu_op"} if _on_device(row) else None


def _privateuse1(row: Row) -> Row | None:
    if row.get("cat") == "cuda_runtime":
        return {**row, "cat": "privateuse1_runtime", "name": "LaunchKernel"}
    return None


def _legacy() -> bytes:
    """What torch builds without Kineto export: a bare list, the process named by what it shows, µs as floats."""
    rows = [row for row in made.rows() if row["ph"] == "X" and row["cat"] in ("user_annotation", "cpu_op")]
    return json.dumps([{**row, "pid": "CPU functions", "cat": "Operator", "args": {}} for row in rows]).encode()


def _named(name: str, **more: Any) -> dict[str, Any]:
    return {**made.HEAD, "deviceProperties": [{"id": 0, "name": name}], **more}


def dialects() -> Iterable[Dialect]:
    """By torch version, then by device."""
    absolute = made.rows(start=SINCE_1970_US)
    tail = {"displayTimeUnit": "ms", "baseTimeNanoseconds": made.BASE_NS, "traceName": "t.json"}
    versions = {"trace_id": "A1", "cupti_version": 24, "cuda_runtime_version": 12080, "host_name": "h"}
    yield Dialect("torch 1.8 to 1.9", _text(made.rows(start=SINCE_1970_US, era="1.8"), _NO_BASE))
    yield Dialect("torch 1.8 to 1.9 without Kineto", _legacy(), "none", 0, 0)
    yield Dialect("torch 1.10 to 1.11", _text(_changed(_torch_1_10, absolute), _NO_BASE))
    yield Dialect("torch 1.12 to 1.13", _text(_changed(_torch_1_12, absolute), _NO_BASE))
    yield Dialect("torch 2.0 to 2.3", _text(_changed(_torch_2_1, absolute), _NO_BASE))
    yield Dialect("torch 2.4 to 2.7", _text(_changed(_torch_2_4, made.rows()), _NO_BASE, tail))
    yield Dialect("torch 2.8", _text(_changed(_torch_2_4, made.rows()), {**made.HEAD, **versions}))
    yield Dialect(
        "torch of 2026", _text(_changed(_torch_2026, made.rows()), {**made.HEAD, **versions, "hardware_counters": []})
    )
    yield Dialect("ROCm", _text(_changed(_rocm, made.rows()), _named("AMD Instinct MI300X")), "rocm")
    yield Dialect("XPU", _text(_changed(_xpu, made.rows()), _named("Intel(R) Data Center GPU Max 1550")), "xpu")
    yield Dialect(
        "MTIA", _text(_changed(_mtia, made.rows()), _named("ARTEMIS")), "foreign", 0, 0, ("ARTEMIS", "Meta's MTIA")
    )
    yield Dialect(
        "HPU", _text(_changed(_hpu, made.rows()), {**made.HEAD, "deviceProperties": []}), "foreign", 0, 0, ("Gaudi",)
    )
    yield Dialect("PrivateUse1", _text(_changed(_privateuse1, made.rows()), _named("")), "unknown")


DIALECTS: tuple[Dialect, ...] = tuple(dialects())
