"""Idle, communication and exposed communication of real traces, against an independent computation and stated truth.

The independent computation reads the JSON itself and unites intervals one by one; it shares no code with the project.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from advisor.computed import Computed
from advisor.model import Metric
from advisor.report.metrics import measure
from advisor.trace.read.load import load

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces beside the checkout ({TRACES.name}/)")

# Idle, communication and exposed communication as shares of the steps' window, as published with the traces.
STATED: dict[str, tuple[float, float, float]] = {
    "resnet50_workers0_v100": (0.43965, 0.0, 0.0),
    "resnet50_workers4_v100": (0.27611, 0.0, 0.0),
    "transformer_ddp_fp32_v100_rank1of2": (0.42424, 0.20562, 0.20562),
    "resnet_fp32_v100_ns": (0.02557, 0.0, 0.0),
    "timesformer_inference_h100": (0.58583, 0.0, 0.0),
    "qwen_generation_h100": (0.08221, 0.0, 0.0),
    "resnet_checkpointing_ddp_mi300_rank0of8": (0.04912, 0.82400, 0.66059),
    "dlrm_8ranks_v100/worker0": (0.54410, 0.40111, 0.38305),
    "dlrm_8ranks_v100/worker1": (0.38089, 0.56962, 0.55555),
    "dlrm_8ranks_v100/worker2": (0.66936, 0.26826, 0.24714),
    "dlrm_8ranks_v100/worker3": (0.44555, 0.50608, 0.48931),
    "dlrm_8ranks_v100/worker4": (0.57161, 0.36637, 0.36431),
    "dlrm_8ranks_v100/worker5": (0.59145, 0.35124, 0.34899),
    "dlrm_8ranks_v100/worker6": (0.66702, 0.27179, 0.25124),
    "dlrm_8ranks_v100/worker7": (0.78743, 0.13958, 0.12631),
}
IDS = ("device_idle_share", "communication_share", "exposed_communication_share")
# The stated figures have five digits; half a thousandth is the tolerance that was asked for.
TOLERANCE = 0.0005
DEVICE_IDS = (
    *IDS,
    "device_busy_share",
    "exposed_copy_share",
    "h2d_bytes",
    "h2d_pageable_bytes",
    "d2h_bytes",
    "copies",
    "kernels",
    "launches",
    "syncs",
    "device_allocs",
)


def path_of(name: str) -> Path:
    return next(path for path in sorted(TRACES.glob(f"{name}*")) if path.is_file())


def metrics_of(name: str) -> dict[str, Metric]:
    return measure(Computed(trace=load(path_of(name))))


def rows_of(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    # Exact decimals: some traces hold µs since 1970 with three digits, which a float rounds to a quarter µs.
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, parse_float=Decimal)
    rows = document["traceEvents"] if isinstance(document, dict) else document
    return [row for row in rows if row.get("ph") == "X" and "dur" in row]


Interval = tuple[Decimal, Decimal]


def ends(row: dict[str, Any]) -> Interval:
    start = Decimal(row["ts"])
    return start, start + Decimal(row["dur"])


def united(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The union of some intervals, cut to the window, one by one."""
    result: list[Interval] = []
    for start, end in sorted(intervals):
        low, high = max(start, window[0]), min(end, window[1])
        if high <= low:
            continue
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], high))
        else:
            result.append((low, high))
    return result


def length(intervals: list[Interval]) -> Decimal:
    return sum((end - start for start, end in intervals), Decimal(0))


def by_hand(path: Path) -> tuple[float, float, float]:
    """Idle, communication and exposed communication, from the JSON alone."""
    rows = rows_of(path)
    category = {id(row): str(row.get("cat", "")).lower() for row in rows}
    steps = [
        ends(row)
        for row in rows
        if re.match(r"ProfilerStep#", str(row.get("name"))) and not category[id(row)].startswith("gpu_")
    ]
    window = (min(start for start, _ in steps), max(end for _, end in steps))
    kernels = [row for row in rows if category[id(row)] == "kernel"]
    others = [row for row in rows if category[id(row)] in ("memcpy", "memset", "gpu_memcpy", "gpu_memset")]
    talks = [row for row in kernels if "nccl" in row["name"].lower()]
    quiet = [row for row in kernels if "nccl" not in row["name"].lower()]
    whole = window[1] - window[0]
    busy = length(united(map(ends, kernels + others), window))
    talking = united(map(ends, talks), window)
    either = length(united(map(ends, kernels), window))
    computing = length(united(map(ends, quiet), window))
    return float(1 - busy / whole), float(length(talking) / whole), float((either - computing) / whole)


@pytest.mark.parametrize("name", STATED)
def test_shares_are_those_stated_and_those_counted_by_hand(name: str) -> None:
    metrics = metrics_of(name)
    counted = by_hand(path_of(name))
    for metric, stated, own in zip(IDS, STATED[name], counted, strict=True):
        assert metrics[metric].status == "measured"
        assert metrics[metric].value == pytest.approx(stated, abs=TOLERANCE), metric
        # The rows are in µs with three digits, so the two computations agree far below the stated digits.
        assert metrics[metric].value == pytest.approx(own, abs=1e-6), metric


@pytest.mark.parametrize(
    ("name", "said"), [("cpu_only_rank34", "only the CPU was recorded"), ("mtia_inference_rank0", "ARTEMIS")]
)
def test_without_device_work_every_device_metric_says_why(name: str, said: str) -> None:
    metrics = metrics_of(name)
    for metric in DEVICE_IDS:
        assert metrics[metric].status == "not_measured", metric
        assert metrics[metric].value is None, metric
        assert said in metrics[metric].why, metric


def test_kernels_and_copies_are_counted_by_the_step_of_their_launch() -> None:
    """Counted from the JSON: by the launch with the same correlation, else by the own start."""
    path = path_of("resnet50_workers0_v100")
    rows = rows_of(path)
    steps = [ends(row) for row in rows if re.match(r"ProfilerStep#", row["name"])]
    window = (min(start for start, _ in steps), max(end for _, end in steps))
    launches = {row["args"]["correlation"]: row["ts"] for row in rows if row.get("cat") == "Runtime"}
    metrics = metrics_of("resnet50_workers0_v100")
    for metric, wanted in (("kernels", "Kernel"), ("copies", "Memcpy")):
        times = [launches.get(row["args"]["correlation"], row["ts"]) for row in rows if row.get("cat") == wanted]
        assert metrics[metric].value == sum(window[0] <= time < window[1] for time in times) / len(steps)
    pageable = [row["args"]["bytes"] for row in rows if "Pageable -> Device" in row["name"]]
    assert metrics["h2d_pageable_bytes"].value == pytest.approx(sum(pageable) / len(steps))
    waits = [row for row in rows if row["name"] == "cudaStreamSynchronize" and window[0] <= row["ts"] < window[1]]
    assert metrics["syncs"].value == len(waits) / len(steps)
