"""The simulated device: what it owes to physics and to CUDA's semantics, on recordings that are drawn by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu.simulated_device import kernels, placement, recording
from benchmarks.gpu.simulated_device.devices import DEVICES, Costs
from benchmarks.gpu.simulated_device.kernels import Kernel
from benchmarks.gpu.simulated_device.machine import Machine
from benchmarks.gpu.simulated_device.recording import Row
from benchmarks.gpu.simulated_device.replayed import Workers
from benchmarks.gpu.simulated_device.simulate import Truth, simulate

from advisor.api import Breakdown, Scale
from advisor.capture.record import read as read_record
from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.trace.read.load import load

A100 = DEVICES["A100"]
COSTS = Costs()
MIB = 1 << 20


def op(name: str, start: float, us: float, *shapes: list[int], values: Iterable[str] = ()) -> dict[str, Any]:
    """A row of the loop's thread; what is inside another by its time lies in it."""
    args = {"Input Dims": list(shapes), "Input type": ["float"] * len(shapes), "Concrete Inputs": list(values)}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": us, "args": args}


def recorded(folder: Path, rows: list[dict[str, Any]], step_us: float, steps: int = 4, **loader: Any) -> Path:
    """A recorded CPU run: the rows of one step, again for each step. Its profiler cost nothing."""
    events = []
    for number in range(steps):
        at = 1000.0 + number * step_us
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": step_us, "args": {}}
        events.append({"ph": "X", "pid": 1, "tid": 1, **mark})
        events += [row | {"ts": at + row["ts"]} for row in rows]
    folder.mkdir(parents=True)
    with gzip.open(folder / "trace.json.gz", "wt") as file:
        json.dump({"schemaVersion": 1, "traceEvents": events}, file)
    marks = {f"ProfilerStep#{i}": i for i in range(steps)}
    rank = {
        "rank": 0,
        "pid": 1,
        "files": [{"path": "trace.json.gz", "role": "profile", "steps": marks}],
        "steps": {"source": "loader", "count": 100, "unprofiled_us": [step_us] * 20, "profiled_us": [step_us] * steps},
        "settings": {"model_device": "cpu"},
        "loaders": [loader] if loader else [],
        "calibration": {"quantities": {"profiler_row_us": [0.0, 0.0, 0.0, 7]}},
    }
    (folder / "run.json").write_text(json.dumps({"schema": "torch-advisor/run", "version": 1, "ranks": [rank]}))
    return folder


def events_of(out: Path, category: str) -> list[dict[str, Any]]:
    """Rows of a category of the simulated trace, by start."""
    with gzip.open(out / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    return sorted((e for e in events if e.get("cat") == category and e["ph"] == "X"), key=lambda e: e["ts"])


def simulated(tmp_path: Path, rows: list[dict[str, Any]], step_us: float, **options: Any) -> tuple[Truth, Path]:
    """The run beside an A100, and where it lies."""
    out = tmp_path / "out"
    return simulate(recorded(tmp_path / "in", rows, step_us), out, A100, **options), out


def test_a_step_computed_by_hand(tmp_path: Path) -> None:
    """Between the rows the host's own time, 40 + 30 + 10 µs; each op takes dispatch and launch; the device idles."""
    rows = [op("aten::relu", 40, 500, [64]), op("aten::relu", 570, 420, [64])]
    truth, out = simulated(tmp_path, rows, 1000)
    by_hand = 40 + 30 + 10 + 2 * (COSTS.dispatch_us + COSTS.launch_us)
    assert truth.step_us == pytest.approx(by_hand)
    kernel = 1.5 + 2 * 64 * 4 / (1555 * 0.8) / 1e3
    assert truth.kernel_us == pytest.approx(2 * kernel)
    assert [e["dur"] for e in events_of(out, "kernel")] == pytest.approx([kernel] * 8, abs=1e-3)


def test_a_product_takes_what_the_roofline_says() -> None:
    row = Row("aten::mm", "cpu_op", 0, 0, op("aten::mm", 0, 0, [8192, 8192], [8192, 8192])["args"])
    (kernel,) = kernels.kernels(row, A100, (False, False)) or []
    assert kernel.us == pytest.approx(2 * 8192**3 / (19.5e12 * 0.75) * 1e6, rel=0.02)
    (tf32,) = kernels.kernels(row, A100, (True, False)) or []
    assert tf32.us == pytest.approx(kernel.us / 8, rel=0.02)
    assert "sgemm" in kernel.name
    assert "tf32" in tf32.name


def test_device_work_is_conserved_and_in_the_stream_s_order(tmp_path: Path) -> None:
    rows = [op("aten::mm", 10 * i, 8, [512 * (i + 1), 512], [512, 512]) for i in range(5)]
    truth, out = simulated(tmp_path, rows, 60)
    work, calls = events_of(out, "kernel"), events_of(out, "cuda_runtime")
    assert sum(e["dur"] for e in work) == pytest.approx(4 * truth.kernel_us, abs=0.02)
    for before, after in pairwise(work):
        assert before["ts"] + before["dur"] <= after["ts"]
    called = {e["args"]["correlation"]: e for e in calls}
    assert len(called) == len(calls)
    order = [called[e["args"]["correlation"]]["ts"] for e in work]
    assert order == sorted(order)
    assert all(e["ts"] >= called[e["args"]["correlation"]]["ts"] + COSTS.latency_us for e in work)


def test_a_device_bound_step_takes_its_kernels_time_with_and_without_the_profiler(tmp_path: Path) -> None:
    rows = [op("aten::mm", 10 * i, 8, [4096, 4096], [4096, 4096]) for i in range(5)]
    truth, _ = simulated(tmp_path, rows, 60)
    assert truth.busy > 0.99
    assert truth.profiled_us == pytest.approx(truth.step_us, rel=0.01)
    assert truth.step_us == pytest.approx(truth.kernel_us, rel=0.01)


@pytest.mark.parametrize("bound", ["device", "launch"])
def test_the_advisor_says_what_bounds_the_step(bound: str, tmp_path: Path) -> None:
    """Five products of 4,096, or 200 of 64 with the host's 10 µs around each."""
    count, size = (5, 4096) if bound == "device" else (200, 64)
    rows = [op("aten::mm", 20 * i, 10, [size, size], [size, size]) for i in range(count)]
    truth, out = simulated(tmp_path, rows, 20 * count)
    record = read_record(out / "run.json").ranks[0]
    computed = Computed(trace=load(out / "trace.json.gz"), record=record)
    assert computed.get(Scale).step_us == pytest.approx(truth.step_us, rel=0.02)
    found = apply(load_rules().by_id()["launch-bound"], computed, {}).status
    if bound == "device":
        assert computed.get(Breakdown).share("compute") > 0.97
        assert found == "clear"
    else:
        assert computed.get(Breakdown).share("compute") == pytest.approx(truth.busy, abs=0.1)
        assert found == "found"


def test_profiling_stretches_a_host_bound_step_and_no_kernel(tmp_path: Path) -> None:
    rows = [op("aten::relu", 10 * i, 8, [64]) for i in range(50)]
    cpu = recorded(tmp_path / "in", rows, 500)
    run = json.loads((cpu / "run.json").read_text())
    run["ranks"][0]["calibration"]["quantities"]["profiler_row_us"] = [1.0, 1.0, 1.0, 7]
    (cpu / "run.json").write_text(json.dumps(run))
    truth = simulate(cpu, tmp_path / "out", A100)
    assert truth.busy < 0.5
    # The recording's own rows cost as much, and that was taken off: of 2 µs between rows half is left at least.
    assert truth.profiled_us - truth.step_us == pytest.approx(50 * (1.0 + COSTS.call_row_us) + 1.0, abs=0.1)


def test_pageable_copies_block_and_pinned_ones_do_not() -> None:
    def ends(count: int, pinned: bool) -> tuple[float, float]:
        machine = Machine(A100, COSTS)
        machine.launch(Kernel("long", 5000.0, 1))
        machine.copy("h2d", count, pinned=pinned, blocking=False)
        return machine.now, machine.stream_end

    now, end = ends(8 * MIB, pinned=False)
    assert now >= end  # it waited for the kernel, and until its bytes were staged
    now, end = ends(8 * MIB, pinned=True)
    assert now < 20
    assert end > 5000
    assert end - 5000 == pytest.approx(8 * MIB / 24e3, rel=0.05)
    now, end = ends(64 << 10, pinned=False)
    assert now < 50  # the driver takes up to 64 KiB at once


def test_reading_a_number_waits_for_all_that_was_launched(tmp_path: Path) -> None:
    rows = [op("aten::mm", 10, 8, [4096, 4096], [4096, 4096]), op("aten::item", 20, 4, [])]
    _, out = simulated(tmp_path, rows, 60)
    waits = [e for e in events_of(out, "cuda_runtime") if e["name"] == "cudaStreamSynchronize"]
    copies = events_of(out, "gpu_memcpy")
    assert [e["name"] for e in copies] == ["Memcpy DtoH (Device -> Pinned)"] * 4
    for wait, copy in zip(waits, copies, strict=True):
        assert wait["ts"] + wait["dur"] >= copy["ts"] + copy["dur"]
        assert wait["dur"] > 5000  # a product of 4,096 in fp32


def test_no_more_launches_are_queued_than_the_queue_holds() -> None:
    machine = Machine(A100, COSTS, recording=True)
    for _ in range(3000):
        machine.launch(Kernel("work", 100.0, 1))
    calls = [row for row in machine.rows if row["cat"] == "cuda_runtime"]
    work = [row for row in machine.rows if row["cat"] == "kernel"]
    for i in (1023, 1500, 2999):
        began = calls[i]["ts"] + calls[i]["dur"] - COSTS.launch_us
        assert sum(row["ts"] + row["dur"] > began for row in work[:i]) <= 1024
    assert calls[1000]["dur"] == pytest.approx(COSTS.launch_us)
    assert calls[2000]["dur"] == pytest.approx(100 + COSTS.between_us, abs=0.1)


def test_cold_start_is_in_the_trace_and_not_in_the_truth(tmp_path: Path) -> None:
    rows = [op("aten::mm", 10 * i, 8, [512, 512], [512, 512]) for i in range(3)]
    cpu = recorded(tmp_path / "in", rows, 60)
    warm, cold = (simulate(cpu, tmp_path / name, A100, cold=name == "cold") for name in ("warm", "cold"))
    assert warm.step_us == cold.step_us
    names = {e["name"] for e in events_of(tmp_path / "cold", "cuda_runtime")}
    assert {"cudaFree", "cudaMalloc"} <= names
    first, second = (e["dur"] for e in events_of(tmp_path / "cold", "user_annotation")[:2])
    assert first > 300_000
    assert second < 1000


def test_batches_come_from_the_host_and_a_loader_s_own_work_stays_there(tmp_path: Path) -> None:
    fetch = {"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"}
    moved = ["", "6", "0", "", "", "True", "False", ""]
    to = op("aten::to", 500, 1, [64, 1024], values=moved)
    to["args"]["Input Dims"] += [[]] * 7
    to["args"]["Input type"] += ["Scalar"] * 7
    rows = [
        fetch | {"pid": 1, "tid": 1, "ts": 5, "dur": 400, "args": {}},
        op("aten::mul", 20, 300, [64, 1024], [64, 1024]),
        to,
        op("aten::addmm", 510, 300, [1024], [64, 1024], [1024, 1024]),
    ]
    truth, out = simulated(tmp_path, rows, 1000)
    copies = events_of(out, "gpu_memcpy")
    assert {(e["name"], e["args"]["bytes"]) for e in copies} == {("Memcpy HtoD (Pageable -> Device)", 64 * 1024 * 4)}
    assert len(events_of(out, "kernel")) == 4  # none of the loader's product
    assert truth.step_us > 5 + 400 + 95


def test_where_tensors_lie_is_followed_through_what_ops_read(tmp_path: Path) -> None:
    """A batch that is moved, a product with a weight that the optimizer steps, a number that stays on the host."""

    def node(i: int, name: str, parent: int, reads: list[Any], writes: list[Any], scope: int = 0) -> dict[str, Any]:
        values = [[10 * s, s, 0, n, 4, "cpu"] for s, n in reads]
        extra: list[Any] = [6, 0, "cpu", "<None>", False, False, "<None>"] if name == "aten::to" else []
        shapes: list[Any] = [[n] for _, n in reads] + [[]] * len(extra)
        out = {"values": [[10 * s, s, 0, n, 4, "cpu"] for s, n in writes], "shapes": [[n] for _, n in writes]}
        attrs = [{"name": "scope", "value": scope}]
        inputs = {"values": values + extra, "shapes": shapes}
        return {"id": i, "name": name, "ctrl_deps": parent, "inputs": inputs, "outputs": out, "attrs": attrs}

    step = [
        node(2, "thread", 1, [], [], 7),
        node(3, "enumerate(DataLoader)#next", 2, [], [], 7),
        node(4, "aten::stack", 3, [(100, 32)], [(101, 64)]),
        node(5, "aten::to", 2, [(101, 64)], [(101, 64)]),
        node(6, "aten::mm", 2, [(101, 64), (102, 4096)], [(103, 64)]),
        node(7, "aten::rand", 2, [], [(104, 8)]),
        node(8, "aten::log", 2, [(104, 8)], [(105, 8)]),
        node(9, "Optimizer.step#SGD.step", 2, [], [], 7),
        node(10, "aten::add_", 9, [(102, 4096)], [(102, 4096)]),
    ]
    names = ["aten::stack", "aten::to", "aten::mm", "aten::rand", "aten::log", "aten::add_"]
    rows = [op(name, 10.0 * i, 5, [64]) for i, name in enumerate(names)]
    read = recording.read(recorded(tmp_path / "in", rows, 100))
    choices = placement.of_steps(replace(read, nodes=step), [read.steps[0].row])[0]
    assert [one.world for one in choices] == ["host", "device", "device", "host", "host", "device"]
    assert (choices[1].moves, choices[1].bytes) == ("h2d", 256)


def test_workers_deliver_at_their_own_pace() -> None:
    """Two workers that take 10 ms for a batch give one each 5 ms, however fast the loop asks."""
    workers, now, times = Workers(batch_us=10_000, count=2, ahead=4), 0.0, []
    for _ in range(20):
        now = workers.fetch(now) + 100
        times.append(now)
    assert (times[-1] - times[3]) / 16 == pytest.approx(5000, rel=0.01)
    now, times = 0.0, []
    slow = Workers(batch_us=10_000, count=2, ahead=4)
    for _ in range(20):
        times.append(slow.fetch(now) - now)
        now += times[-1] + 8000
    assert times[5:] == [0.0] * 15  # a loop of 8 ms finds each batch there


def test_what_other_processes_added_to_a_step_is_taken_out(tmp_path: Path) -> None:
    read = recording.read(recorded(tmp_path / "in", [op("aten::relu", 40, 20, [64])], 100, steps=5))
    late = read.steps[2].row
    late.children[0].start += 3000
    late.children[0].end += 3000
    late.end += 3000
    recording.steadied(read.steps)
    assert [step.row.end - step.row.start for step in read.steps] == pytest.approx([100.0] * 5)
    assert [step.row.children[0].start - step.row.start for step in read.steps] == pytest.approx([40.0] * 5)


def test_a_copy_as_it_is_needs_no_kernel(tmp_path: Path) -> None:
    copies = [
        op("aten::copy_", 10, 50, [1024, 1024], [1024, 1024]),
        op("aten::copy_", 70, 50, [1024, 1024], [1024, 1024]),
    ]
    for row, strides in zip(copies, ([1024, 1], [1, 1024]), strict=True):
        row["args"]["Input Strides"] = [[1024, 1], strides]
    _, out = simulated(tmp_path, copies, 200)
    assert {e["name"] for e in events_of(out, "gpu_memcpy")} == {"Memcpy DtoD (Device -> Device)"}
    assert len(events_of(out, "kernel")) == len(events_of(out, "gpu_memcpy")) == 4
