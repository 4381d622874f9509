"""Nsight Systems' SQLite exports: what was put into the tables is what the report says, and nothing is written."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import nsight_writer as made
import numpy as np
import pytest
from device_loops import Work, loop

from advisor.cli import main
from advisor.computed import Computed
from advisor.errors import InputError
from advisor.inputs import jobs
from advisor.model import Metric
from advisor.report.metrics import measure
from advisor.trace.events import Category, Trace
from advisor.trace.read.load import load

LOOP = loop()


def _metrics(trace: Trace) -> dict[str, Metric]:
    return measure(Computed(trace=trace))


def _said(trace: Trace) -> dict[str, str]:
    return {health.id: health.message for health in trace.health}


def _changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as base, base:
        for statement in statements:
            base.execute(statement)
    return path


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_the_loop(seed: int, tmp_path: Path) -> None:
    one = loop(seed=seed)
    metrics = _metrics(load(made.export(one).write(tmp_path / "t.sqlite")))
    assert metrics["device_busy_share"].value == pytest.approx(one.busy_share(), abs=1e-12)
    assert metrics["device_idle_share"].value == pytest.approx(1 - one.busy_share(), abs=1e-12)
    assert metrics["kernels"].value == one.per_step("kernel")
    assert metrics["copies"].value == one.per_step("memcpy")
    copied = sum(work.bytes for work in one.works if work.kind == "memcpy") / len(one.steps)
    assert metrics["h2d_bytes"].value == metrics["h2d_pageable_bytes"].value == copied
    assert metrics["syncs"].value == 1


def test_rows_are_those_of_the_tables(tmp_path: Path) -> None:
    trace = load(made.export(LOOP).write(tmp_path / "t.sqlite"))
    events = trace.events
    found = {
        int(events.correlation[row]): (
            *(int(column[row]) for column in (events.start_ns, events.end_ns, events.stream, events.bytes)),
            events.text(row),
        )
        for row in np.flatnonzero(trace.device_work)
    }
    names = {"memcpy": "Memcpy HtoD (Pageable -> Device)", "memset": "Memset (Device)"}
    assert found == {
        work.correlation: (
            *(work.start + made.EPOCH, work.end + made.EPOCH, work.stream, work.bytes),
            work.name or names[work.kind],
        )
        for work in LOOP.works
    }
    calls = [events.text(row) for row in np.flatnonzero(events.of(Category.RUNTIME))]
    assert calls == [call.name for call in LOOP.calls]
    assert set(events.blocks[events.of(Category.KERNEL)].tolist()) == {32}
    assert [events.text(row) for row in np.flatnonzero(events.of(Category.CPU_OP))] == ["aten::mm"]
    assert trace.meta.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert (trace.meta.devices[0].major, trace.meta.devices[0].multiprocessors) == (9, 132)
    host = events.threads[int(events.thread[np.flatnonzero(events.of(Category.RUNTIME))[0]])]
    assert (host.pid, host.tid, host.name) == (str(made.PID), str(made.TID), "python")


def test_the_file_stays_as_it_is(tmp_path: Path) -> None:
    path = made.export(LOOP).write(tmp_path / "t.sqlite")
    path.chmod(0o444)
    before = path.read_bytes()
    load(path)
    jobs.find([path])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["t.sqlite"]


def test_of_several_processes_the_one_with_most_work_is_read(tmp_path: Path) -> None:
    export = made.export(LOOP)
    made.add_loop(export, loop(steps=3, seed=5), pid=99)
    trace = load(export.write(tmp_path / "t.sqlite"))
    assert int(trace.device_work.sum()) == len(LOOP.works)
    assert {thread.pid for thread in trace.events.threads} == {"0", str(made.PID)}
    assert f"process {made.PID} was read" in _said(trace)["trace-processes"]


def test_devices_in_the_order_of_the_process(tmp_path: Path) -> None:
    export = made.export(LOOP)
    export.add("TARGET_INFO_GPU", "", [(1, "NVIDIA A100", 40_000_000_000, 108, 8, 0)])
    export.add("TARGET_INFO_CUDA_DEVICE", "gpuId INTEGER, cudaId INTEGER, pid INTEGER", [(1, 0, made.PID), (0, 0, 99)])
    devices = load(export.write(tmp_path / "t.sqlite")).meta.devices
    assert [device.name for device in devices] == ["NVIDIA A100"]


def test_graphs_that_were_traced_as_a_whole_are_work(tmp_path: Path) -> None:
    export = made.export(LOOP)
    columns = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, graphId INTEGER"
    last = LOOP.works[-1].end
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", columns, [(last, last + 5000, 0, 7, 9999, 3)])
    trace = load(export.write(tmp_path / "t.sqlite"))
    assert "CUDA graph 3" in trace.events.names
    assert "--cuda-graph-trace=node" in _said(trace)["trace-graphs"]


def test_tables_and_columns_that_are_not_there(tmp_path: Path) -> None:
    path = made.export(LOOP).write(tmp_path / "t.sqlite")
    _changed(
        path,
        "DROP TABLE NVTX_EVENTS",
        "DROP TABLE TARGET_INFO_GPU",
        "DROP TABLE TARGET_INFO_SESSION_START_TIME",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN gridZ",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN demangledName",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN srcKind",
    )
    trace = load(path)
    assert {"gemm_0", "Memcpy HtoD"} <= set(trace.events.names)
    assert int(trace.device_work.sum()) == len(LOOP.works)
    assert trace.without_ops
    assert _metrics(trace)["cpu_ops"].value is None


def test_an_export_without_device_work_says_so(tmp_path: Path) -> None:
    path = made.export(LOOP).write(tmp_path / "t.sqlite")
    _changed(path, *(f"DROP TABLE CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")))
    assert "--trace=cuda,nvtx" in _said(load(path))["trace-device"]


def test_columns_of_other_types_cost_their_rows_alone(tmp_path: Path) -> None:
    path = made.export(LOOP).write(tmp_path / "t.sqlite")
    _changed(
        path,
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid = 1",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 'x', gridX = NULL, demangledName = x'ff' WHERE rowid = 2",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 1e300, globalTid = 'y' WHERE rowid = 1",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start = -9223372036854775808 WHERE rowid = 1",
        "UPDATE StringIds SET value = CAST(x'ff41' AS TEXT) WHERE value = 'gemm_1<float>'",
        "UPDATE NVTX_EVENTS SET text = x'ff', eventType = 59, end = 6000000000 WHERE text = 'a mark'",
    )
    trace = load(path)
    assert "\ufffdA" in trace.events.names
    assert int(trace.events.of(Category.KERNEL).sum()) == 4 * len(LOOP.steps) - 1


def test_views_and_virtual_tables_are_left_out(tmp_path: Path) -> None:
    path = made.export(LOOP).write(tmp_path / "t.sqlite")
    endless = (
        "WITH RECURSIVE more(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM more) SELECT x AS start, x AS end FROM more"
    )
    _changed(path, "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}")
    assert not load(path).events.of(Category.KERNEL).any()
    _changed(
        path,
        "DROP VIEW CUPTI_ACTIVITY_KIND_KERNEL",
        "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start, end)",
    )
    assert not load(path).events.of(Category.KERNEL).any()


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (("CREATE TABLE runs (id INTEGER)",), "not an Nsight Systems export"),
        (("CREATE TABLE StringIds (id INTEGER, value TEXT)",), "without CUDA or NVTX"),
        (("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)",), "a trace without events"),
    ],
)
def test_what_is_no_such_export_is_refused_in_one_line(statements: tuple[str, ...], says: str, tmp_path: Path) -> None:
    path = _changed(tmp_path / "t.sqlite", *statements)
    with pytest.raises(InputError, match=says) as refusal:
        load(path)
    assert "\n" not in str(refusal.value)


def test_damage_is_refused_in_one_line_or_read(tmp_path: Path) -> None:
    whole = made.export(LOOP).write(tmp_path / "whole.sqlite").read_bytes()
    draw = random.Random(3)
    refusals: list[str] = []
    for number in range(150):
        data = bytearray(whole[: draw.randint(100, len(whole))] if number % 2 else whole)
        for _ in range(draw.randint(0, 40)):
            data[draw.randrange(16, len(data))] = draw.randrange(256)
        (tmp_path / "t.sqlite").write_bytes(data)
        try:
            load(tmp_path / "t.sqlite")
        except InputError as refusal:
            refusals.append(str(refusal))
    assert len(refusals) > 20  # or nothing was tested
    assert not [words for words in refusals if "\n" in words]


def test_the_window_of_an_export_is_known_without_reading_it(tmp_path: Path) -> None:
    for rank in range(2):
        made.export(loop(seed=rank)).write(tmp_path / f"rank{rank}.sqlite")
    apart = loop(start=3_600_000_000_000)
    made.export(apart).write(tmp_path / "rank2.sqlite")
    found = jobs.find([tmp_path])
    assert sorted(len(job.traces) for job in found) == [1, 2]


def test_compressed_it_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite.gz"
    path.write_bytes(gzip.compress(made.export(LOOP).write(tmp_path / "t.sqlite").read_bytes()))
    with pytest.raises(InputError, match="decompress it first"):
        load(path)


def test_analyze_finds_steps_by_the_ranges_of_the_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made.export(LOOP).write(tmp_path / "t.sqlite")
    assert main(["analyze", str(path), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["steps"]["count"], report["steps"]["source"]) == (len(LOOP.steps), "user")
    found = {outcome["rule"] for outcome in report["outcomes"] if outcome["status"] == "found"}
    assert {"sync-in-loop", "pageable-copies"} <= found
    assert not [outcome for outcome in report["outcomes"] if outcome["status"] == "error"]
    assert any("Nsight Systems" in one["message"] for one in report["health"])


def test_work_is_not_the_same_in_each_step() -> None:
    lengths = {work.end - work.start for work in LOOP.works if isinstance(work, Work)}
    assert len(lengths) > len(LOOP.steps)
