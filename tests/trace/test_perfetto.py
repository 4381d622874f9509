"""Perfetto's protobuf traces: what was written by hand, byte by byte, is what the report says."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import zlib
from decimal import Decimal
from pathlib import Path

import numpy as np
import perfetto_writer as made
import pytest
from device_loops import Loop, loop

from advisor.cli import main
from advisor.computed import Computed
from advisor.errors import InputError
from advisor.inputs import jobs
from advisor.model import Metric
from advisor.report.metrics import measure
from advisor.trace.events import Category, Trace
from advisor.trace.read.load import load

REAL = Path(__file__).parents[2].parent / "shared" / "traces" / "resnet_fp32_v100_ns.pt.trace.json.gz"
LOOP = loop()


def _load(data: bytes, folder: Path, name: str = "t.pftrace") -> Trace:
    (folder / name).write_bytes(data)
    return load(folder / name)


def _metrics(trace: Trace) -> dict[str, Metric]:
    return measure(Computed(trace=trace))


def _said(trace: Trace) -> dict[str, str]:
    return {health.id: health.message for health in trace.health}


def _slices(trace: Trace, *kinds: Category) -> list[tuple[int, int]]:
    events = trace.events
    rows = np.flatnonzero(events.of(*kinds))
    return sorted(zip(events.start_ns[rows].tolist(), events.end_ns[rows].tolist(), strict=True))


@pytest.mark.parametrize("written", [made.slices, made.rocprof])
@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_the_loop(written: object, seed: int, tmp_path: Path) -> None:
    one = loop(seed=seed)
    trace = _load(written(one), tmp_path)  # type: ignore[operator]
    metrics = _metrics(trace)
    assert metrics["device_busy_share"].value == pytest.approx(one.busy_share(), abs=1e-12)
    assert metrics["device_idle_share"].value == pytest.approx(1 - one.busy_share(), abs=1e-12)
    assert metrics["copies"].value == one.per_step("memcpy")
    # rocprofv3 lists fills as kernels.
    fills = one.per_step("memset") if written is made.rocprof else 0
    assert metrics["kernels"].value == one.per_step("kernel") + fills
    assert metrics["h2d_bytes"].value == sum(work.bytes for work in one.works if work.kind == "memcpy") / len(one.steps)
    assert metrics["syncs"].value == 1
    lengths = sorted((step.end - step.start) / 1e3 for step in one.steps)
    assert metrics["step_time_us"].value == pytest.approx((lengths[3] + lengths[4]) / 2, rel=0.02)
    work = [(work.start, work.end) for work in one.works]
    assert _slices(trace, Category.KERNEL, Category.MEMCPY, Category.MEMSET) == sorted(work)


def test_calls_and_work_are_linked_by_their_numbers(tmp_path: Path) -> None:
    trace = _load(made.slices(LOOP), tmp_path)
    events = trace.events
    linked = {
        int(events.correlation[row]): (int(events.start_ns[row]), events.text(row))
        for row in np.flatnonzero(events.of(Category.RUNTIME))
    }
    assert linked == {call.correlation: (call.start, call.name) for call in LOOP.calls}
    streams = {int(events.correlation[row]): int(events.stream[row]) for row in np.flatnonzero(trace.device_work)}
    assert streams == {work.correlation: work.stream for work in LOOP.works}


def test_what_is_not_in_it_is_not_measured(tmp_path: Path) -> None:
    trace = _load(made.slices(LOOP), tmp_path)
    assert _metrics(trace)["cpu_ops"].value is None
    assert "Perfetto" in _metrics(trace)["cpu_ops"].why
    assert "Python lines" in _said(trace)["trace-format"]
    host_only = made.thread_track(1) + made.begin(5, 1, made.block(23, "a")) + made.end(9, 1)
    assert "device work is unknown" in _said(_load(host_only, tmp_path))["trace-format"]


def test_packed_and_bundled_it_is_the_same(tmp_path: Path) -> None:
    data = made.slices(LOOP)
    plain = _slices(_load(data, tmp_path), *Category)
    assert _slices(_load(gzip.compress(data), tmp_path, "t.pftrace.gz"), *Category) == plain
    assert _slices(_load(made.bundled([data]), tmp_path), *Category) == plain


def test_packets_of_other_kinds_are_skipped_and_counted(tmp_path: Path) -> None:
    strange = made.packet(made.integer(8, 7), made.block(1, b"\x01\x02")) + made.packet(made.block(900, b"x"))
    housekeeping = made.packet(made.block(33, b"config")) + made.packet(made.block(36, b"marker"))
    trace = _load(strange + housekeeping + made.slices(LOOP) + strange, tmp_path)
    assert _said(trace)["trace-rows"].startswith("4 packets of other kinds")
    assert len(_slices(trace, Category.KERNEL)) == 4 * len(LOOP.steps)


def test_a_clock_of_differences_in_microseconds(tmp_path: Path) -> None:
    """As the SDK writes: a snapshot relates clock 64 to boot time, packets state what passed since the last one."""
    boot = made.integer(1, 6) + made.integer(2, 5_000_000)
    own = made.integer(1, 64) + made.integer(2, 90) + made.integer(3, 1) + made.integer(4, 1000)
    defaults = made.block(59, made.integer(58, 64) + made.block(11, made.integer(11, 1)))
    data = made.packet(made.integer(13, 1), made.block(6, made.block(1, boot) + made.block(1, own)), defaults)
    for passed, kind in ((10, 1), (5, 1), (7, 2), (0, 2)):
        event = made.integer(9, kind) + (made.block(23, f"after {passed}") if kind == 1 else b"")
        data += made.packet(made.integer(8, passed), made.block(11, event), sequence=1)
    other = made.begin(5_001_000, 2, made.block(23, "in boot time"), sequence=2) + made.end(5_002_000, 2, sequence=2)
    events = _load(data + other, tmp_path).events
    found = {events.text(row): (int(events.start_ns[row]), int(events.end_ns[row])) for row in range(len(events))}
    assert found == {
        "after 10": (5_010_000, 5_022_000),
        "after 5": (5_015_000, 5_022_000),
        "in boot time": (5_001_000, 5_002_000),
    }


def test_names_belong_to_their_sequence_until_it_is_cleared(tmp_path: Path) -> None:
    def named(time: int, sequence: int) -> bytes:
        begun = made.begin(time, sequence, made.integer(10, 1), sequence=sequence)
        return begun + made.end(time + 1, sequence, sequence)

    data = b"".join(
        (
            made.packet(made.integer(13, 1), made.interned(names={1: "first"}), sequence=1),
            made.packet(made.integer(13, 1), made.interned(names={1: "other"}), sequence=2),
            *(named(10, 1), named(20, 2)),
            made.packet(made.integer(13, 1), made.interned(names={1: "second"}), sequence=1),
            named(30, 1),
            made.packet(made.integer(13, 1), made.interned(), sequence=2),
            named(40, 2),
        )
    )
    trace = _load(data, tmp_path)
    assert [trace.events.text(row) for row in range(4)] == ["first", "other", "second", ""]
    assert _said(trace)["trace-rows"].startswith("1 event without a name")


def test_annotations_of_every_type(tmp_path: Path) -> None:
    nested = made.block(11, made.block(10, "a") + made.integer(4, -3))
    nested += made.block(11, made.block(10, "b") + made.block(6, "x"))
    dims = made.block(12, made.block(12, made.integer(4, 8)) + made.block(12, made.integer(4, 16)))
    fields = (
        made.block(22, "cpu_op"),
        made.block(23, "aten::mm"),
        made.block(4, made.block(10, "Input Dims") + dims),
        made.block(4, made.block(10, "Input type") + made.block(9, '["float", "float"]')),
        made.block(4, made.block(10, "other") + nested),
        made.annotation("External id", 17),
        made.annotation("ratio", 0.5),
    )
    events = _load(made.thread_track(1) + made.begin(5, 1, *fields) + made.end(9, 1), tmp_path).events
    assert events.category.tolist() == [Category.CPU_OP]
    assert json.loads(events.dims_table[events.dims[0]]) == [[8, 16]]
    assert json.loads(events.dtypes_table[events.dtypes[0]]) == ["float", "float"]
    assert events.external_id.tolist() == [17]


@pytest.mark.parametrize(
    ("track", "category", "name", "expected"),
    [
        ("stream 7", "", "gemm", Category.KERNEL),
        ("CUDA stream #7", "", "Memcpy DtoH", Category.MEMCPY),
        ("GPU 1 queue 2", "x", "memset", Category.MEMSET),
        ("stream 7", "gpu_user_annotation", "range", Category.DEVICE_ANNOTATION),
        ("queue 3", "", "gemm", Category.ANNOTATION),
        ("Upstream 7", "", "gemm", Category.ANNOTATION),
        ("worker", "kernel", "gemm", Category.KERNEL),
        ("worker", "", "aten::mm", Category.CPU_OP),
        ("worker", "", "cudaLaunchKernel", Category.RUNTIME),
        ("worker", "", "curious", Category.ANNOTATION),
        ("worker", "app,hip_api", "hipFree", Category.RUNTIME),
        ("worker", "hsa_api", "hsa_signal_wait", Category.OTHER),
    ],
)
def test_what_a_slice_is(track: str, category: str, name: str, expected: Category, tmp_path: Path) -> None:
    fields = [made.block(23, name), *(made.block(22, one) for one in category.split(",") if one)]
    data = made.named_track(1, track) + made.begin(5, 1, *fields) + made.end(9, 1)
    assert _load(data, tmp_path).events.category.tolist() == [expected]


def test_two_tracks_without_numbers_are_two_streams(tmp_path: Path) -> None:
    data = made.named_track(1, "compute") + made.named_track(2, "side")
    for track in (1, 2):
        data += made.begin(5, track, made.block(22, "kernel"), made.block(23, "k")) + made.end(9, track)
    assert len(set(_load(data, tmp_path).events.stream.tolist())) == 2


def test_chromes_complete_events(tmp_path: Path) -> None:
    legacy = made.block(6, made.integer(2, ord("X")) + made.integer(3, 25))
    data = made.packet(made.integer(8, 1000), made.block(11, made.integer(11, 1) + made.block(23, "a") + legacy))
    assert _slices(_load(data, tmp_path), *Category) == [(1000, 26_000)]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_what_was_cut_off_keeps_its_first_part(share: float, tmp_path: Path) -> None:
    data = made.slices(LOOP)
    trace = _load(data[: int(len(data) * share)], tmp_path)
    whole = set(_slices(_load(data, tmp_path), *Category))
    found = _slices(trace, *Category)
    assert 0 < len(found) < len(whole)
    assert set(found) < whole
    assert "cut off" in _said(trace)["trace-truncated"]


def test_a_compressed_file_that_was_cut_off(tmp_path: Path) -> None:
    data = made.slices(loop(steps=200))
    packed = gzip.compress(data)
    trace = _load(packed[: len(packed) // 2], tmp_path, "t.pftrace.gz")
    assert 0 < len(trace.events) < len(_load(data, tmp_path).events)
    assert "the compressed file is cut off" in _said(trace)["trace-truncated"]


def test_a_damaged_packet_costs_only_itself(tmp_path: Path) -> None:
    damaged = made.block(1, made.integer(8, 7) + b"\x5a\xff\x01")
    trace = _load(made.slices(LOOP) + damaged + made.begin(6, 1, made.block(23, "last")) + made.end(7, 1), tmp_path)
    assert "last" in trace.events.names
    assert _said(trace)["trace-rows"].startswith("1 damaged packet that")


def test_bytes_by_chance_are_a_trace_or_one_line(tmp_path: Path) -> None:
    draw, whole, read = random.Random(7), made.slices(loop(steps=2)), 0
    refusals: list[str] = []
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 12)):
            data[draw.randrange(1, len(data))] = draw.randrange(256)
        try:
            trace = _load(bytes(data), tmp_path)
        except InputError as refusal:
            refusals.append(str(refusal))
        else:
            read += 1
            assert (trace.events.dur_ns >= 0).all()
    assert read > 100  # or nothing was tested
    assert not [words for words in refusals if "\n" in words]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (made.block(1, made.integer(1, 1) + made.block(2, "/device:TPU:0")), "XPlane"),
        (made.packet(made.integer(8, 5), made.block(1, b"\x01")), "without track events"),
        (made.slices(LOOP)[:40], "cut off"),
        (made.packet(made.block(50, zlib.compress(bytes(65 << 20)))), "damaged"),
    ],
)
def test_what_is_no_such_trace_is_refused_in_one_line(data: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        _load(data, tmp_path)
    assert "\n" not in str(refusal.value)


def test_json_after_an_empty_line_is_json(tmp_path: Path) -> None:
    text = b'\n{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k\x01", "ts": 1, "dur": 2}]}\0\0'
    assert _load(text, tmp_path).meta.format == "kineto"
    long = made.packet(made.integer(8, 5), made.block(11, made.integer(9, 1) + made.block(23, "x" * 112)))
    assert long[:2] == b"\n{"
    assert _load(long + made.end(9, 0), tmp_path).meta.format == "perfetto"


def test_ranks_by_their_names_are_one_job(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.pftrace").write_bytes(made.slices(loop(seed=rank)))
    (job,) = jobs.find([tmp_path])
    assert [trace.rank for trace in job.traces] == [0, 1]


def test_analyze_says_what_such_a_trace_cannot_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.pftrace").write_bytes(made.slices(LOOP))
    assert main(["analyze", str(tmp_path / "t.pftrace"), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    by_rule = {outcome["rule"]: outcome for outcome in report["outcomes"]}
    assert by_rule["sync-in-loop"]["status"] == "found"
    assert by_rule["unfused-elementwise"]["status"] == "skipped"
    assert "without torch ops" in by_rule["unfused-elementwise"]["reason"]
    assert (report["steps"]["count"], report["steps"]["source"]) == (len(LOOP.steps), "user")


@pytest.mark.skipif(not REAL.exists(), reason="the real traces do not lie beside this checkout")
def test_a_real_trace_in_this_format_gives_the_figures_of_its_json(tmp_path: Path) -> None:
    rows = json.loads(gzip.decompress(REAL.read_bytes()), parse_float=Decimal)["traceEvents"]
    wanted = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "user_annotation", "kernel", "memcpy", "memset")
    rows = [row for row in rows if row["ph"] == "X" and row.get("cat", "").lower() in (*wanted, "runtime")]
    steps = [row for row in rows if row["name"].startswith("ProfilerStep")]
    assert steps
    rows = [row for row in rows if row["cat"] != "user_annotation"] + steps
    for row in rows:
        row["args"] = {key: _plain(value) for key, value in row.get("args", {}).items() if not isinstance(value, list)}
    trace = _load(made.of_kineto(rows), tmp_path)
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": rows}, default=str))
    expected, found = _metrics(load(tmp_path / "t.json")), _metrics(trace)
    for name in ("device_busy_share", "kernels", "copies", "launches", "step_time_us"):
        assert found[name].value == pytest.approx(expected[name].value, rel=1e-9), name
        assert found[name].value, name


def _plain(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else value


def test_reading_json_imports_none_of_this() -> None:
    names = "[name for name in sys.modules if 'trace.formats' in name or name == 'sqlite3']"
    code = f"import sys, advisor; advisor.load; print({names})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_loop_varies() -> None:
    assert isinstance(LOOP, Loop)
    assert 0.3 < LOOP.busy_share() < 0.99
