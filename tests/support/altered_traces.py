"""Traces changed as tools, versions and recordings change them, without any change of what they say.

An `Alteration` takes the document of a trace and gives another one, of which the same must be told. `SAME` changes how
things are written; `FORMS` leaves out what older files lack, or writes another vendor's names: step and shares stay.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Document = dict[str, Any]

_WORK = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
_DAY_US = 86_400_000_000
_OLD_NAMES = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "cuda_driver": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of a whole trace."""

    name: str
    change: Callable[[list[Row]], list[Row]]
    head: Callable[[Document], Document] = dict

    def of(self, document: Document) -> Document:
        """The changed trace; the given one stays as it is."""
        rows = self.change(copy.deepcopy(document["traceEvents"]))
        head = {key: value for key, value in document.items() if key != "traceEvents"}
        return {**self.head(head), "traceEvents": rows}


def _each(change: Callable[[Row], Row | None]) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [new for row in rows if (new := change(row)) is not None]


def _shuffled(rows: list[Row]) -> list[Row]:
    random.Random(7).shuffle(rows)
    return rows


def _renumbered(rows: list[Row]) -> list[Row]:
    """Host processes and threads under other numbers, as in another run."""
    device = {row.get("pid") for row in rows if row.get("cat") in _WORK}
    for row in rows:
        if row.get("pid") in device or not isinstance(row.get("pid"), int):
            continue
        row["pid"] += 40_000
        if isinstance(row.get("tid"), int):
            row["tid"] += 500_000
    return rows


def _as_text(row: Row) -> Row:
    """Every other row names its process and thread by text."""
    if int(row.get("ts") or 0) % 2:
        return {**row, **{key: str(row[key]) for key in ("pid", "tid") if key in row}}
    return row


def _later(row: Row) -> Row:
    return {**row, "ts": row["ts"] + _DAY_US} if isinstance(row.get("ts"), int | float) else row


def _texts(row: Row) -> Row:
    return {**row, **{key: str(row[key]) for key in ("ts", "dur") if isinstance(row.get(key), int | float)}}


def _more_rows(rows: list[Row]) -> list[Row]:
    """Counters, instants, async spans and arrows of other tools, all along the trace."""
    timed = [row for row in rows if row.get("ph") == "X"]
    for row in timed[:: max(len(timed) // 200, 1)]:
        at = {"ts": row["ts"], "pid": row["pid"], "tid": row["tid"]}
        rows += [
            {"ph": "C", "name": "power", **at, "args": {"watts": 250}},
            {"ph": "i", "name": "marker", "s": "g", **at},
            {"ph": "b", "cat": "other", "name": "span", "id": 7, **at},
            {"ph": "e", "cat": "other", "name": "span", "id": 7, **at},
            {"ph": "s", "cat": "other_flow", "name": "other_flow", "id": 7, **at},
            {"ph": "f", "cat": "other_flow", "name": "other_flow", "id": 7, "bp": "e", **at},
        ]
    return rows


def _old_names(row: Row) -> Row | None:
    """As torch 1.8 wrote: other categories, `external id`, streams as text, no scopes of the device."""
    if row.get("cat") == "gpu_user_annotation":
        return None
    if row.get("cat") in _WORK:
        row["tid"] = f"stream {row['tid']}"
    args = row.get("args", {})
    if "External id" in args:
        args["external id"] = args.pop("External id")
    return {**row, "cat": _OLD_NAMES.get(row.get("cat", ""), row.get("cat"))} if "cat" in row else row


def _uncorrelated(row: Row) -> Row | None:
    """Only `External id` says what launched what."""
    if row.get("cat") in ("ac2g", "async_gpu", "async_cpu_to_gpu"):
        return None
    row.get("args", {}).pop("correlation", None)
    return row


_HIP = ((re.compile(r"^cuda(?=[A-Z])"), "hip"), (re.compile(r"^cu(?=[A-Z])"), "hip"))
_PRODUCT = re.compile("gemm|cutlass|nvjet", re.IGNORECASE)
_CONVOLUTION = re.compile("cudnn|implicit|wgrad|dgrad|fprop", re.IGNORECASE)
_BF16 = re.compile("bf16|bfloat|nvjet", re.IGNORECASE)
_FP16 = re.compile("fp16|half|hgemm|16816|h884|f16", re.IGNORECASE)


def _on_rocm(row: Row) -> Row:
    """HIP's calls, and kernels as Tensile and MIOpen name theirs, with their format."""
    name = str(row.get("name", ""))
    if row.get("cat") in ("cuda_runtime", "cuda_driver", "Runtime"):
        for pattern, word in _HIP:
            name = pattern.sub(word, name)
    elif row.get("cat") in ("kernel", "Kernel"):
        if "nccl" not in name.lower() and _CONVOLUTION.search(name):
            kind = "fp16" if _BF16.search(name) or _FP16.search(name) else "fp32"
            name = f"miopenSp3AsmConv_v30_3_1_gfx9_{kind}_f{len(name)}x3_stride1_group"
        elif "nccl" not in name.lower() and _PRODUCT.search(name):
            kind = "BBS_BH" if _BF16.search(name) else "HHS_BH" if _FP16.search(name) else "SB"
            name = f"Cijk_Ailk_Bljk_{kind}_MT{len(name)}x64x32_MI16x16x4x1"
    return {**row, "name": name}


def _units(head: Document) -> Document:
    return {**head, "displayTimeUnit": "us" if head.get("displayTimeUnit") == "ns" else "ns"}


def _amd(head: Document) -> Document:
    devices = [
        one if "AMD" in one.get("name", "") else {**one, "name": "AMD Instinct MI250X"}
        for one in head.get("deviceProperties", [])
    ]
    return {**head, "deviceProperties": devices}


def _rank(head: Document) -> Document:
    stated = head.get("distributedInfo")
    if not stated:
        return head
    return {**head, "distributedInfo": {**stated, "rank": max(int(stated["world_size"]) - 1, 0)}}


def forward_only(document: Document) -> Document:
    """What runs before the first backward row of a trace, with the work of the device that it launched."""
    rows = [row for row in document["traceEvents"] if row.get("ph") == "X" and "ts" in row]
    backward = [float(row["ts"]) for row in rows if "autograd::engine" in row["name"] or "Backward" in row["name"]]
    end = min(backward, default=float("inf"))
    kept = [row for row in rows if row.get("cat") not in _WORK and float(row["ts"]) + float(row.get("dur", 0)) <= end]
    kept = [row for row in kept if "Optimizer" not in row["name"] and "ProfilerStep" not in row["name"]]
    known = {row.get("args", {}).get("correlation") for row in kept} - {None}
    work = [row for row in rows if row.get("cat") in _WORK and row.get("args", {}).get("correlation") in known]
    named = [row for row in document["traceEvents"] if row.get("ph") == "M"]
    return {**document, "traceEvents": named + kept + work}


SAME = (
    Alteration("rows in any order", _shuffled),
    Alteration("other processes and threads", _renumbered),
    Alteration("processes and threads as text", _each(_as_text)),
    Alteration("a day later", _each(_later)),
    Alteration("times as text", _each(_texts)),
    Alteration("rows of other tools", _more_rows),
    Alteration("another unit to show", list, _units),
    Alteration("another rank", list, _rank),
)
FORMS = (
    Alteration("names of torch 1.8", _each(_old_names)),
    Alteration("no correlations", _each(_uncorrelated)),
    Alteration("ROCm", _each(_on_rocm), _amd),
)
