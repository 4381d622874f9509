"""Properties that hold for every set of events: made at random, checked against counting µs one by one."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.api import (
    Breakdown,
    Communication,
    Copies,
    Device,
    GpuBusy,
    GpuIdle,
    InputWaits,
    Launches,
    Lines,
    Matmuls,
    Missing,
    Ops,
    OptimizerWork,
    Phases,
    Steps,
    Syncs,
)
from advisor.computed import Computed
from advisor.report.metrics import measure
from advisor.report.timeline_view import MOST_SEGMENTS, timeline
from advisor.trace.intervals import total
from advisor.trace.read.load import read_bytes

WHOLE_US = 400
Json = dict[str, Any]

DEVICE = ("gemm", "elementwise", "ncclDevKernel_AllReduce", "Memcpy HtoD (Pageable -> Device)", "Memset (Device)")
HOST = (
    ("aten::mm", "cpu_op"),
    ("aten::item", "cpu_op"),
    ("autograd::engine::evaluate_function: MmBackward0", "cpu_op"),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"),
    ("Optimizer.step#SGD.step", "user_annotation"),
    ("gloo:all_reduce", "user_annotation"),
    ("cudaLaunchKernel", "cuda_runtime"),
    ("cudaStreamSynchronize", "cuda_runtime"),
    ("cudaMemcpyAsync", "cuda_runtime"),
    ("train.py(3): main", "python_function"),
    ("ProfilerStep#9", "gpu_user_annotation"),
    ("Lazy Function Loading", "overhead"),
    ("Stream Sync", "cuda_sync"),
)
times = st.tuples(st.integers(0, WHOLE_US), st.integers(0, 90))
HOST_REST = (st.sampled_from(HOST), st.integers(1, 3), st.integers(0, 12))
device_rows = st.lists(st.tuples(times, st.sampled_from(DEVICE), st.integers(6, 8), st.integers(0, 12)), max_size=14)
# Host rows start at odd µs and steps at even ones, all different: rows that begin together nest either way.
host_rows = st.lists(
    st.tuples(st.tuples(st.integers(0, WHOLE_US // 2).map(lambda at: 2 * at + 1), st.integers(0, 90)), *HOST_REST),
    max_size=25,
    unique_by=lambda row: row[0][0],
)
steps_rows = st.lists(st.integers(10, 80).map(lambda half: 2 * half), min_size=0, max_size=3)


def document(device: list[Any], host: list[Any], steps: list[int]) -> Json:
    """The JSON of a trace with those rows; steps follow each other from 20 µs on."""
    bar = {"name": "PyTorch Profiler (0)", "cat": "Trace", "pid": "Spans", "tid": "x", "ts": 0, "dur": WHOLE_US}
    rows: list[Json] = [{**bar, "args": {}}]
    for (start, dur), name, stream, correlation in device:
        cat = "gpu_memcpy" if "Memcpy" in name else "gpu_memset" if "Memset" in name else "kernel"
        args = {"device": 0, "stream": stream, "correlation": correlation}
        rows.append({"name": name, "cat": cat, "pid": 0, "tid": stream, "ts": start, "dur": dur, "args": args})
    for (start, dur), (name, cat), thread, correlation in host:
        args = {"correlation": correlation} if cat == "cuda_runtime" else {}
        rows.append({"name": name, "cat": cat, "pid": 9, "tid": thread, "ts": start, "dur": dur, "args": args})
    at = 20
    for number, dur in enumerate(steps):
        step = {"name": f"ProfilerStep#{number}", "cat": "user_annotation", "pid": 9, "tid": 1, "ts": at, "dur": dur}
        rows.append({**step, "args": {}})
        # An op in every step: a last one without any would be none.
        rows.append({"name": "aten::t", "cat": "cpu_op", "pid": 9, "tid": 1, "ts": at + 2, "dur": 1, "args": {}})
        at += dur
    return {"traceEvents": [{"ph": "X", **row} for row in rows]}


def analysed(made: Json) -> Computed:
    return Computed(trace=read_bytes(json.dumps(made).encode(), "made"))


def ticks(made: Json, *categories: str) -> set[int]:
    """Every µs that a row of those categories covers."""
    return {
        tick
        for row in made["traceEvents"]
        if row["cat"] in categories
        for tick in range(row["ts"], row["ts"] + row["dur"])
    }


def answers(computed: Computed) -> dict[str, object]:
    """Everything that is computed, in a form that compares."""
    found: dict[str, object] = {name: (m.value, m.status, m.why) for name, m in measure(computed).items()}
    for kind in (Breakdown, GpuIdle, Syncs, Copies, Launches, Ops, OptimizerWork):
        try:
            value = computed.get(kind)
        except Missing as reason:
            found[kind.__name__] = str(reason)
            continue
        if isinstance(value, Breakdown):
            found["breakdown"] = value.items
        elif isinstance(value, GpuIdle):
            found["gaps"] = [(gap.start_ns, gap.end_ns, gap.cause) for gap in value.gaps]
    return found


@settings(deadline=None, max_examples=150)
@given(device_rows, host_rows, steps_rows)
def test_busy_time_and_breakdown_are_those_of_counted_microseconds(device: Any, host: Any, steps: list[int]) -> None:
    made = document(device, host, steps)
    computed = analysed(made)
    try:
        found = computed.get(Steps)
    except Missing:
        return
    window = {tick for low, high in found.window.tolist() for tick in range(low // 1000, high // 1000)}
    breakdown = computed.get(Breakdown)
    assert abs(sum(item.share for item in breakdown.items) - 1) < 1e-9
    assert all(0 <= item.share <= 1 for item in breakdown.items)
    assert sum(total(spans) for spans in breakdown.intervals.values()) == found.window_ns
    if not device or not computed.get(Device).measured:  # a trace of launches without kernels has lost them
        return
    work = ticks(made, "kernel", "gpu_memcpy", "gpu_memset") & window
    assert computed.get(GpuBusy).busy_ns == 1000 * len(work)
    idle = computed.get(GpuIdle)
    assert abs(idle.share - (1 - len(work) / len(window))) < 1e-9
    kernels = [row for row in made["traceEvents"] if row["cat"] == "kernel"]
    talks = [row for row in kernels if "nccl" in row["name"]]
    others = [row for row in kernels if "nccl" not in row["name"]]
    exposed = (ticks({"traceEvents": talks}, "kernel") - ticks({"traceEvents": others}, "kernel")) & window
    assert total(computed.get(Communication).exposed) == 1000 * len(exposed)
    assert total(breakdown.intervals["exposed_communication"]) == 1000 * len(exposed)
    copies = (ticks(made, "gpu_memcpy") - ticks(made, "kernel")) & window
    assert total(computed.get(Copies).exposed) == 1000 * len(copies)


@settings(deadline=None, max_examples=100)
@given(device_rows, host_rows, steps_rows)
def test_every_metric_is_measured_within_its_range_or_says_why(device: Any, host: Any, steps: list[int]) -> None:
    computed = analysed(document(device, host, steps))
    try:
        computed.get(Steps)
    except Missing:
        return
    for metric in measure(computed).values():
        if metric.status == "not_measured":
            assert metric.value is None
            assert metric.why
        else:
            assert metric.value is not None
            assert metric.value >= 0
            assert metric.unit != "share" or metric.value <= 1, metric.id
    for kind in (Phases, InputWaits, Matmuls, Lines):
        computed.find(kind)


@settings(deadline=None, max_examples=60)
@given(device_rows, host_rows, steps_rows, st.integers(0, 1000))
def test_the_order_of_rows_in_the_file_changes_nothing(device: Any, host: Any, steps: list[int], seed: int) -> None:
    made = document(device, host, steps)
    shuffled = list(made["traceEvents"])
    random.Random(seed).shuffle(shuffled)
    first, second = analysed(made), analysed({"traceEvents": shuffled})
    try:
        first.get(Steps)
    except Missing:
        return
    one, two = answers(first), answers(second)
    for name in (
        "breakdown",
        "gaps",
        "device_idle_share",
        "kernels",
        "launches",
        "syncs",
        "input_wait_share",
        "copies",
    ):
        assert one.get(name) == two.get(name), name


@settings(deadline=None, max_examples=60)
@given(device_rows, host_rows, steps_rows)
def test_rows_that_are_no_work_never_make_the_device_busy(device: Any, host: Any, steps: list[int]) -> None:
    made = document(device, host, steps)
    covering = {
        "ph": "X",
        "name": "x",
        "pid": 0,
        "tid": 7,
        "ts": 0,
        "dur": WHOLE_US,
        "args": {"device": 0, "stream": 7},
    }
    more = [{**covering, "cat": cat} for cat in ("gpu_user_annotation", "cuda_sync", "overhead", "Trace", "unheard_of")]
    try:
        before = analysed(made).get(GpuBusy)
    except Missing:
        return
    after = analysed({"traceEvents": [*made["traceEvents"], *more]}).get(GpuBusy)
    assert (after.busy_ns, after.share) == (before.busy_ns, before.share)


@settings(deadline=None, max_examples=60)
@given(device_rows, host_rows, steps_rows)
def test_the_drawn_step_fits_its_frame(device: Any, host: Any, steps: list[int]) -> None:
    try:
        drawn = timeline(analysed(document(device, host, steps)))
    except Missing:
        return
    for lane in drawn.lanes if drawn else ():
        assert len(lane.segments) <= MOST_SEGMENTS
        for segment in lane.segments:
            assert segment.start_us >= 0
            assert segment.dur_us >= 0
            assert segment.start_us + segment.dur_us <= drawn.dur_us + 1e-6
