"""The trace file as Kineto of torch 2.x writes it: rows, flows, names of threads, properties of the device."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from .devices import Device
from .machine import STREAM

BACKWARD_THREAD = 1  # the device's autograd thread: the loop's id plus this
MARKED = ("ProfilerStep#", "Optimizer.")


def write(
    path: Path, rows: list[dict[str, Any]], device: Device, like: dict[str, Any], thread: tuple[Any, Any]
) -> None:
    """The rows as a trace file. like: the recorded trace, whose header and clock it takes over."""
    base = min(float(e["ts"]) for e in like["traceEvents"] if str(e.get("name")).startswith("ProfilerStep#"))
    pid, tid = thread
    events: list[dict[str, Any]] = [_named(pid, 0, base, "process_name", {"name": "python"})]
    events += [_named(pid, 0, base, "process_labels", {"labels": "CPU"})]
    events += [_named(0, 0, base, "process_name", {"name": "python"})]
    events += [_named(0, 0, base, "process_labels", {"labels": "GPU 0"})]
    for stream in sorted({row["tid"] for row in rows if row.get("pid") == 0} | {STREAM}):
        events.append(_named(0, stream, base, "thread_name", {"name": f"stream {stream} "}))
    for one in (tid, tid + BACKWARD_THREAD):
        events.append(_named(pid, one, base, "thread_name", {"name": f"thread {one} (python)"}))
    for number, row in enumerate(rows):
        event = dict(row)
        if event.get("pid") != 0:
            event["pid"] = pid
            event["tid"] = tid + BACKWARD_THREAD if row["tid"] == "backward" else tid
        event["ts"] = round(base + row["ts"], 3)
        event["dur"] = round(row["dur"], 3)
        if event["cat"] in ("cpu_op", "user_annotation"):
            event["args"] = {**event["args"], "Record function id": 0, "Ev Idx": number}
        events.append(event)
    placed = [event for event in events if event["ph"] == "X"]
    events += [*_launch_flows(placed), *_marks_of_device(placed)]
    end = max(event["ts"] + event["dur"] for event in placed)
    span = {
        "ph": "X",
        "cat": "Trace",
        "ts": base,
        "dur": round(end - base, 3),
        "pid": "Spans",
        "tid": "PyTorch Profiler",
    }
    events.append({**span, "name": "PyTorch Profiler (0)", "args": {"Op count": 0}})
    header = {key: value for key, value in like.items() if key not in ("traceEvents", "deviceProperties")}
    if "distributedInfo" in header:
        header["distributedInfo"] = _nccl(header["distributedInfo"])
    _on_device(events, header.get("distributedInfo", {}).get("rank", 0))
    document = {**header, "deviceProperties": [properties(device)], "cupti_version": 24, "traceEvents": events}
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=3) as file:
        json.dump(document, file)


def _named(pid: Any, tid: Any, ts: float, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "ts": ts, "pid": pid, "tid": tid, "args": args}


def _nccl(info: dict[str, Any]) -> dict[str, Any]:
    """What the trace says of the job's process groups."""
    groups = [{**one, "backend_config": "cuda:nccl"} for one in info.get("pg_config") or []]
    return {**info, "backend": "nccl", "pg_config": groups, "nccl_version": "2.27.5"}


def _on_device(events: list[dict[str, Any]], index: int) -> None:
    """Rows of the device are those of the device of that index."""
    for event in events:
        if event.get("pid") == 0:
            event["pid"] = index
            if event.get("args", {}).get("device") == 0:
                event["args"] = {**event["args"], "device": index}
            if event["name"] == "process_labels":
                event["args"] = {"labels": f"GPU {index}"}


def _launch_flows(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An arrow from each call to the work that it launched."""
    work = {e["args"]["correlation"]: e for e in events if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")}
    flows = []
    for call in events:
        if call["cat"] == "cuda_runtime" and (target := work.get(call["args"]["correlation"])):
            both = {"id": call["args"]["correlation"], "cat": "ac2g", "name": "ac2g"}
            flows.append({"ph": "s", "pid": call["pid"], "tid": call["tid"], "ts": call["ts"], **both})
            flows.append({"ph": "f", "pid": 0, "tid": target["tid"], "ts": target["ts"], **both, "bp": "e"})
    return flows


def _marks_of_device(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Annotations as they show on the stream: from the first to the last work that was launched inside them."""
    work = {e["args"]["correlation"]: e for e in events if e["cat"] in ("kernel", "gpu_memcpy")}
    calls = [e for e in events if e["cat"] == "cuda_runtime" and e["args"]["correlation"] in work]
    found = []
    for mark in events:
        if mark["cat"] != "user_annotation" or not mark["name"].startswith(MARKED):
            continue
        inside = [
            work[call["args"]["correlation"]]
            for call in calls
            if mark["ts"] <= call["ts"] <= mark["ts"] + mark["dur"] and call["tid"] == mark["tid"]
        ]
        inside = [one for one in inside if one["tid"] == STREAM]
        if inside:
            start = min(one["ts"] for one in inside)
            end = max(one["ts"] + one["dur"] for one in inside)
            args = {"External id": mark["args"]["External id"]}
            where = {"pid": 0, "tid": STREAM, "ts": start, "dur": round(end - start, 3), "args": args}
            found.append({"ph": "X", "cat": "gpu_user_annotation", "name": mark["name"], **where})
    return found


def properties(device: Device) -> dict[str, Any]:
    """`deviceProperties` of the trace."""
    return {
        "id": 0,
        "name": device.name,
        "totalGlobalMem": device.memory_bytes,
        "computeMajor": device.capability[0],
        "computeMinor": device.capability[1],
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 1024 if device.capability == (7, 5) else 2048,
        "regsPerBlock": 65536,
        "warpSize": 32,
        "sharedMemPerBlock": 49152,
        "numSms": device.multiprocessors,
    }
