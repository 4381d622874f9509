"""Several ranks beside simulated devices: when collectives end, what waits for them, what the advisor reads of it."""

from __future__ import annotations

import gzip
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu.simulated_device import recording
from benchmarks.gpu.simulated_device.collectives import HOOKED, Call, Meetings
from benchmarks.gpu.simulated_device.devices import DEVICES, Costs
from benchmarks.gpu.simulated_device.enlarged import enlarge
from benchmarks.gpu.simulated_device.recording import Row
from benchmarks.gpu.simulated_device.simulate import simulate
from benchmarks.gpu.test_simulated_device import op, recorded

from advisor.analyses.communication.communication import Communication
from advisor.computed import Computed
from advisor.trace.read.load import load

A100, COSTS = DEVICES["A100"], Costs()
NODE = "autograd::engine::evaluate_function: "
COUNT = 4_000_000  # fp32 numbers, 16 MB
CROSSING_US = COSTS.collective_us + 4 * COUNT / (A100.link_gbs * A100.share_of_link) / 1e3  # two ranks: each byte once


def gloo(start: float, us: float) -> dict[str, Any]:
    """What a thread of gloo did."""
    return op("gloo:all_reduce", start, us, [COUNT]) | {"tid": 9, "cat": "user_annotation"}


def job(folder: Path, *ranks: list[dict[str, Any]], step_us: float) -> Path:
    """A recorded job: the rows of a step of each rank."""
    folder.mkdir()
    found = []
    for number, rows in enumerate(ranks):
        one = recorded(folder / f"one{number}", rows, step_us)
        record = json.loads((one / "run.json").read_text())["ranks"][0]
        record["files"][0]["path"] = f"rank{number}.json.gz"
        shutil.move(one / "trace.json.gz", folder / f"rank{number}.json.gz")
        found.append(record | {"rank": number, "local_rank": number, "world_size": len(ranks)})
    (folder / "run.json").write_text(json.dumps({"schema": "torch-advisor/run", "version": 1, "ranks": found}))
    return folder


def hooked(late_us: float = 0.0) -> list[dict[str, Any]]:
    """A backward pass of two products; the hook of the first gradient reduces it, and at the end the host waits."""
    at = late_us + 10
    return [
        op(f"{NODE}MmBackward0", at, 40, [4096, 4096]),
        op("aten::mm", at + 5, 30, [4096, 4096], [4096, 4096]),
        op(f"{NODE}torch::autograd::AccumulateGrad", at + 50, 30),
        op("c10d::allreduce_", at + 60, 10, [[COUNT]]),  # type: ignore[list-item]
        gloo(at + 75, 3000),
        op(f"{NODE}MmBackward0", at + 90, 40, [4096, 4096]),
        op("aten::mm", at + 95, 30, [4096, 4096], [4096, 4096]),
        op("aten::relu", at + 3100, 10, [64]),
    ]


def of_device(folder: Path, rank: int) -> list[dict[str, Any]]:
    """Kernels of one rank, by start."""
    with gzip.open(folder / f"rank{rank}.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    return sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])


def test_a_collective_ends_when_the_last_rank_has_come_and_the_bytes_have_crossed() -> None:
    meetings = Meetings(A100, COSTS, 2)
    call = Call(Row("c10d::allreduce_", "cpu_op", 0, 0, {}), COUNT, COUNT, "float")
    sent = replace(call, row=Row("c10d::broadcast_", "cpu_op", 0, 0, {}))
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda rank: meetings.end("", 1, rank, (100.0, 900.0)[rank], call), (0, 1)))
        early_root = list(pool.map(lambda rank: meetings.end("", 2, rank, (100.0, 900.0)[rank], sent), (0, 1)))
    assert ends == pytest.approx([900 + CROSSING_US] * 2)
    assert early_root == pytest.approx([100 + CROSSING_US, 900 + CROSSING_US], rel=0.2)


def test_a_hook_s_reduction_runs_beside_the_backward_pass_and_what_follows_waits(tmp_path: Path) -> None:
    """The second product starts while the gradient is under way; what comes after the pass starts when it is there."""
    truth = simulate(job(tmp_path / "in", hooked(), hooked(), step_us=3300), tmp_path / "out", A100)
    kernels = of_device(tmp_path / "out", 1)
    reductions = [e for e in kernels if e["tid"] == HOOKED]
    products, after = ([e for e in kernels if word in e["name"]] for word in ("sgemm", "relu"))
    assert [e["name"].split("(")[0] for e in reductions] == ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] * 4
    assert [e["dur"] for e in reductions] == pytest.approx([CROSSING_US] * 4, abs=0.01)
    for number, reduction in enumerate(reductions):
        assert products[2 * number + 1]["ts"] < reduction["ts"] + reduction["dur"]
        assert after[number]["ts"] >= reduction["ts"] + reduction["dur"] - 0.01
    # The host waited 2.9 ms of the recorded step for gloo: of the device's products, which take longer, nothing waits.
    assert truth.step_us == pytest.approx(2 * products[0]["dur"], rel=0.05)


def test_a_late_rank_is_waited_for_in_its_collective(tmp_path: Path) -> None:
    late_us = 50_000.0
    ranks = [hooked(late_us), hooked()]
    truth = simulate(job(tmp_path / "in", *ranks, step_us=late_us + 3300), tmp_path / "out", A100)
    assert truth.step_us > late_us
    waits = [e["dur"] for e in of_device(tmp_path / "out", 1) if e["tid"] == HOOKED]
    sends = [e["dur"] for e in of_device(tmp_path / "out", 0) if e["tid"] == HOOKED]
    assert sends[1:] == pytest.approx([CROSSING_US] * 3, rel=0.01)
    assert min(waits[1:]) > late_us / 2


def test_the_advisor_reads_the_collectives(tmp_path: Path) -> None:
    simulate(job(tmp_path / "in", hooked(), hooked(), step_us=3300), tmp_path / "out", A100)
    found = Computed(trace=load(tmp_path / "out" / "rank0.json.gz")).get(Communication)
    assert found.calls == pytest.approx(1)
    assert found.bytes == pytest.approx(4 * COUNT)


def test_a_larger_batch_changes_what_the_batch_has_and_nothing_of_the_weights(tmp_path: Path) -> None:
    rows = [
        op("aten::view", 10, 5, [13, 64, 512], values=["", "[832, 512]"]),
        op("aten::mm", 20, 5, [832, 512], [512, 2048]),
        {**op("Optimizer.step#AdamW.step", 40, 50), "cat": "user_annotation"},
        op("aten::add_", 50, 5, [26], [26]),
    ]
    read = recording.read(recorded(tmp_path / "in", rows, 200))
    value = [7, 8, 0, 832 * 512, 4, "cpu"]
    side = {"values": [value], "shapes": [[832, 512]]}
    read.nodes.append({"inputs": side, "outputs": {"values": [], "shapes": []}})
    enlarge(read, 13, 10)
    by_name = {row.name: row for row in read.steps[0].row.all()}
    assert by_name["aten::view"].dims == [[130, 64, 512]]
    assert by_name["aten::view"].values == ["", "[8320, 512]"]
    assert by_name["aten::mm"].dims == [[8320, 512], [512, 2048]]
    assert by_name["aten::add_"].dims == [[26], [26]]
    assert side == {"values": [[7, 8, 0, 8320 * 512, 4, "cpu"]], "shapes": [[8320, 512]]}
