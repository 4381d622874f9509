"""The recorder's rows with what Kineto writes around them: arrows, names of threads, the window, steps on the device.

On an XPU the same calls have other names, and work of the device says a queue instead of a stream (torch 2.7, PTI).
"""

from __future__ import annotations

from typing import Any

from .recorded import Recorded
from .runtime import MAIN, Row

_XPU = {
    "xpuLaunchKernel": "urEnqueueKernelLaunch",
    "xpuMemcpyAsync": "urEnqueueUSMMemcpy",
    "xpuStreamSynchronize": "urEventWait",
}
_COPIES = {"Memcpy DtoH (Device -> Pageable)": "Memcpy D2M (DEVICE -> MEMORY(Unknown))"}
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


class Arrowed(Recorded):
    """xpu: whether the device is one of Intel's."""

    def __init__(self, device: Row, *, xpu: bool = False, **options: Any) -> None:
        super().__init__(device, **options)
        self.xpu = xpu
        self.prefix = "xpu" if xpu else self.prefix

    def usual(self, category: str) -> Row:
        """Calls with their number, work of the device with its occupancy, as files have them."""
        usual = super().usual(category)
        if category == "cuda_runtime":
            usual["cid" if self.prefix == "hip" else "cbid"] = 211
        if category == "kernel" and self.prefix == "cuda":
            usual |= {"registers per thread": 128, "shared memory": 49152, "est. achieved occupancy %": 25}
        return usual

    def document(self) -> Row:
        """What is in the file."""
        known = super().document()
        rows = known["traceEvents"]
        calls = {row["args"]["correlation"]: row for row in rows if _calls(row)}
        arrows = [arrow for row in rows if row["cat"] in _WORK for arrow in _arrows(row, calls)]
        marks = list(_steps_on_device(rows, calls)) if not self.xpu else []
        first, last = rows[0]["ts"], max(row["ts"] + row["dur"] for row in rows)
        for row in rows:
            self._of_xpu(row)
        about = [
            {"ph": "M", "name": "process_name", "pid": 4242, "tid": 0, "ts": first, "args": {"name": "python"}},
            {"ph": "M", "name": "thread_name", "pid": 4242, "tid": 2, "ts": first, "args": {"name": "pt_autograd_0"}},
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"},
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": last + 900},
        ]
        about[2] |= {"ts": first, "dur": round(last - first, 3), "args": {"Op count": 0}}
        known |= {
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1762300800000000000,
            "record_shapes": int(self.shapes),
        }
        known["traceEvents"] = [*rows, *marks, *arrows, *about]
        return known | ({"deviceProperties": []} if self.xpu else {})

    def _of_xpu(self, row: Row) -> None:
        if self.xpu and row["cat"] == "cuda_runtime":
            row |= {"cat": "xpu_runtime", "name": _XPU.get(row["name"], row["name"])}
        if self.xpu and row["cat"] in _WORK:
            kept = {key: row["args"][key] for key in ("device", "correlation", "External id", "bytes")
                    if key in row["args"]}  # fmt: skip
            row["name"] = _COPIES.get(row["name"], row["name"])
            row["args"] = {**kept, "sycl queue": "0x55d0c8", "l0 queue": "0x55d1f0", "kernel_id": 77}


def _calls(row: Row) -> bool:
    return row["cat"] == "cuda_runtime" and "correlation" in row["args"]


def _arrows(work: Row, calls: dict[int, Row]) -> list[Row]:
    call = calls.get(work["args"]["correlation"])
    if call is None:
        return []
    common = {"id": work["args"]["correlation"], "cat": "ac2g", "name": "ac2g"}
    ends = (("s", call, {}), ("f", work, {"bp": "e"}))
    return [{"ph": ph, "pid": at["pid"], "tid": at["tid"], "ts": at["ts"], **common, **more} for ph, at, more in ends]


def _steps_on_device(rows: list[Row], calls: dict[int, Row]) -> list[Row]:
    """`ProfilerStep` on the main stream: from the first to the last work that each step launched there."""
    found = []
    work = [row for row in rows if row["cat"] in _WORK and row["tid"] == MAIN and row["args"]["correlation"] in calls]
    launched = [(calls[row["args"]["correlation"]]["ts"], row) for row in work]
    for step in [row for row in rows if row["name"].startswith("ProfilerStep")]:
        mine = [row for ts, row in launched if step["ts"] <= ts < step["ts"] + step["dur"]]
        if mine:
            begin, end = mine[0]["ts"], max(row["ts"] + row["dur"] for row in mine)
            made = {"ph": "X", "cat": "gpu_user_annotation", "name": step["name"], "pid": 0, "tid": MAIN, "ts": begin}
            found.append({**made, "dur": round(end - begin, 3), "args": {"External id": step["args"]["External id"]}})
    return found
