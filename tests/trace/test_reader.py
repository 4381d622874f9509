"""The reader on sound input: exact times, all eras and devices, all paths and the second thread agree."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import kineto_files.dialects as made
import numpy as np
import pytest
from benchmarks.reading import made_traces
from hypothesis import given, settings
from hypothesis import strategies as st

import advisor
from advisor.errors import InputError
from advisor.trace import intervals
from advisor.trace.dialects import category
from advisor.trace.events import Category, Events, Trace
from advisor.trace.numbers import ABSENT, nanoseconds, times
from advisor.trace.read import kineto, load
from advisor.trace.read import rows as reader_rows
from advisor.trace.read.extract import extract
from advisor.trace.read.split import opening
from advisor.trace.repair.event_by_event import Careful
from advisor.trace.tables import Tables

REAL = Path(__file__).parents[2].parent / "shared" / "traces"
pytestmark = [pytest.mark.usefixtures("reader"), pytest.mark.variants(3)]
real = pytest.mark.skipif(not REAL.is_dir(), reason="the real traces do not lie beside this checkout")


def _document(rows: list[made.Row], **top: Any) -> bytes:
    return json.dumps({**top, "traceEvents": rows}).encode()


def _row(**fields: Any) -> made.Row:
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5, **fields}


def _same(a: Trace, b: Trace) -> None:
    """The same rows, whatever numbers the tables gave to their texts."""
    assert _shown(a.events) == _shown(b.events)
    assert a.meta == b.meta
    for name in ("time_ns", "bytes", "total_allocated", "device"):
        assert np.array_equal(getattr(a.memory, name), getattr(b.memory, name))


def _shown(events: Events) -> list[tuple[Any, ...]]:
    plain = ("start_ns", "dur_ns", "category", "device", "stream", "correlation", "external_id", "bytes", "blocks")
    plain += ("sequence", "forward_thread", "python_id", "python_parent")
    columns = [getattr(events, name).tolist() for name in plain]
    names = [events.names[index] for index in events.name]
    threads = [events.threads[index] for index in events.thread]
    dims = [events.dims_table[index] if index >= 0 else None for index in events.dims]
    waits = [events.waited_table[index] if index >= 0 else None for index in events.waited]
    stacks = [events.stack_table[index] if index >= 0 else None for index in events.stack]
    return list(zip(*columns, waits, names, threads, dims, stacks, strict=True))


@given(st.decimals(min_value=0, max_value=Decimal("7900000000000.999"), places=3))
def test_relative_times_are_exact_to_the_nanosecond(us: Decimal) -> None:
    assert times([float(str(us))]).tolist() == [int(us * 1000)]


@given(st.integers(0, 10**12), st.integers(0, 999))
def test_absolute_times_are_exact_to_the_nanosecond(extra: int, fraction: int) -> None:
    start = 1_712_195_495_519_957 + extra
    text = (
        f'{{"traceEvents": [{{"ph": "X", "cat": "kernel", "name": "k", "ts": {start}.{fraction:03d}, "dur": 1.001}}]}}'
    )
    trace = load.read_bytes(text.encode(), "t")
    assert trace.events.start_ns.tolist() == [start * 1000 + fraction]
    assert trace.events.dur_ns.tolist() == [1001]


def test_integer_times_since_1970_and_their_base() -> None:
    trace = load.read_bytes(_document([_row(ts=1623142623460111, dur=25)], baseTimeNanoseconds=17), "t")
    assert trace.events.start_ns.tolist() == [1623142623460111 * 1000 + 17]
    assert trace.events.dur_ns.tolist() == [25_000]


@pytest.mark.parametrize("value", ["x", "1e999999999", "nan", True, None, [], 10**400, float("inf")])
def test_what_is_no_time_is_absent(value: Any) -> None:
    assert nanoseconds(value) == ABSENT


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("Operator", Category.CPU_OP),
        ("cpu_op", Category.CPU_OP),
        ("Kernel", Category.KERNEL),
        ("kernel", Category.KERNEL),
        ("Memcpy", Category.MEMCPY),
        ("gpu_memcpy", Category.MEMCPY),
        ("gpu_memset", Category.MEMSET),
        ("Runtime", Category.RUNTIME),
        ("cuda_driver", Category.RUNTIME),
        ("xpu_runtime", Category.RUNTIME),
        ("privateuse1_runtime", Category.RUNTIME),
        ("gpu_user_annotation", Category.DEVICE_ANNOTATION),
        ("cuda_sync", Category.SYNC),
        ("mtia_ccp_events", Category.FOREIGN_DEVICE),
        ("hpu_op", Category.FOREIGN_DEVICE),
        ("Trace", Category.OTHER),
        ("a category of 2031", Category.OTHER),
    ],
)
def test_categories_of_all_eras_and_devices(raw: str, expected: Category) -> None:
    assert category(raw) == expected
    trace = load.read_bytes(_document([_row(cat=raw)]), "t")
    assert trace.device_work.tolist() == [expected in (Category.KERNEL, Category.MEMCPY, Category.MEMSET)]


def test_the_era_of_torch_1_8() -> None:
    trace = load.read_bytes(made.text(made.rows(era="1.8"), {}).encode(), "t")
    events = trace.events
    steps = events.named("ProfilerStep")
    assert (events.category[steps] == Category.ANNOTATION).all()
    assert steps.sum() == 6
    kernel = int(np.flatnonzero(events.category == Category.KERNEL)[0])
    assert (events.stream[kernel], events.external_id[kernel], events.blocks[kernel]) == (7, 1, 20)
    assert len(trace.memory.time_ns) == 6
    assert trace.memory.bytes.tolist() == [512] * 6


@pytest.mark.parametrize(("era", "expected"), [("Operator", Category.ANNOTATION), ("cpu_op", Category.CPU_OP)])
def test_annotations_of_scripts_were_operators_once(era: str, expected: Category) -> None:
    """Files of torch 1.8 have them among the ops; since 1.12 a compiled region is an op whose name has spaces, too."""
    named = ("## forward ##", "DistributedDataParallel.forward", "Torch-Compiled Region: 0/0")
    ops = ("aten::add", "autograd::engine::evaluate_function: AddBackward0", "ReluBackward1", "detach_")
    events = load.read_bytes(_document([_row(cat=era, name=name) for name in (*named, *ops)]), "t").events
    assert {events.text(at): events.category[at] for at in range(len(events))} == {
        **dict.fromkeys(named, expected),
        **dict.fromkeys(ops, Category.CPU_OP),
    }


def test_a_step_drawn_on_the_device_is_no_step() -> None:
    trace = load.read_bytes(made.good().encode(), "t")
    steps = trace.events.named("ProfilerStep")
    kinds = trace.events.category[steps].tolist()
    assert kinds.count(Category.ANNOTATION) == kinds.count(Category.DEVICE_ANNOTATION) == 6


def test_session_bars_and_their_end_are_no_work() -> None:
    trace = load.read_bytes(made.good().encode(), "t")
    bar = trace.events.exactly("PyTorch Profiler (0)")
    assert trace.events.category[bar].tolist() == [Category.OTHER]
    assert not trace.events.named("Record Window End").any()


def test_what_the_file_says_of_itself() -> None:
    meta = load.read_bytes(made.good().encode(), "t").meta
    assert (meta.rank, meta.world_size, meta.backend, meta.record_shapes) == (1, 2, "nccl", True)
    assert (meta.devices[0].name, meta.devices[0].major, meta.devices[0].multiprocessors) == (
        "NVIDIA H100 80GB HBM3",
        9,
        132,
    )
    assert meta.with_stack is None


def test_a_tid_is_the_same_thread_as_number_and_as_text() -> None:
    trace = load.read_bytes(_document([_row(pid=1, tid=2), _row(pid="1", tid="2", ts=99)]), "t")
    assert [(t.pid, t.tid) for t in trace.events.threads] == [("1", "2")]
    assert trace.events.thread.tolist() == [0, 0]


def test_rows_stand_by_start_the_longer_first() -> None:
    rows = [
        _row(name="late", ts=20),
        _row(name="short", ts=5, dur=1),
        _row(name="long", ts=5, dur=9),
        _row(name="same", ts=5, dur=9),
    ]
    events = load.read_bytes(_document(rows), "t").events
    assert [events.text(row) for row in range(4)] == ["long", "same", "short", "late"]


@given(
    st.lists(st.text(alphabet="aB\u0130c\0n:", max_size=6), min_size=1, max_size=8),
    st.text(alphabet="ab:c", max_size=2),
)
def test_events_by_a_part_of_their_name(names: list[str], part: str) -> None:
    events = load.read_bytes(_document([_row(name=name, ts=at) for at, name in enumerate(names)]), "t").events
    assert events.named(part, "zzz").tolist() == [part.lower() in name.lower() for name in names]


def test_durations_that_cannot_be_right_are_said() -> None:
    rows = [_row(ts=1000 * at, dur=900) for at in range(20)]
    assert load.read_bytes(_document([*rows, _row(ts=500, dur=1_600_000)]), "t").health[0].id == "trace-overrun"
    # Kernels that start some µs before the one before them ends are real.
    near = [_row(ts=1000 * at, dur=1003.7) for at in range(74)]
    assert load.read_bytes(_document(near), "t").health == ()


def test_flow_arrows_may_lack_an_end_or_share_an_id() -> None:
    flows = [{"ph": phase, "id": 1, "pid": 0, "tid": 7, "ts": 1, "cat": "ac2g", "name": "ac2g"} for phase in "ssf"]
    trace = load.read_bytes(_document([_row(), *flows]), "t")
    assert len(trace.events) == 1
    assert trace.health == ()


def test_several_windows_in_one_file_stay_apart() -> None:
    rows = made.rows(3) + made.rows(3, start=5_000_000.0)
    events = load.read_bytes(made.text(rows).encode(), "t").events
    steps = events.start_ns[events.named("ProfilerStep") & events.of(Category.ANNOTATION)]
    assert len(steps) == 6
    assert np.diff(steps).max() > 10**9


def test_collectives_say_what_they_move() -> None:
    args = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 8,
        "Out msg nelems": "9",
        "Group size": 2,
        "Process Group Name": "0",
        "Seq": 3,
        "stream": 20,
    }
    events = load.read_bytes(_document([_row(args=args)]), "t").events
    found = events.collective_table[int(events.collective[0])]
    assert (found.name, found.dtype, found.in_elements, found.out_elements) == ("allreduce", "Float", 8, 9)
    assert (found.group_size, found.group, found.sequence) == (2, "0", 3)


def test_a_thread_for_every_row_is_read_like_any_other() -> None:
    rows = [_row(tid=at, ts=at, cat="cpu_op" if at % 2 else "kernel") for at in range(30_000)]
    events = load.read_bytes(_document(rows), "t").events
    assert [int(events.threads[thread].tid) for thread in events.thread] == list(range(30_000))
    assert events.of(Category.CPU_OP).tolist() == [False, True] * 15_000


def _careful(data: bytes) -> Iterator[Any]:
    """The rows that the careful path finds in the list of events."""
    text = data[data.index(b"[", data.index(b'"traceEvents"')) + 1 :]
    return iter(Careful().read(text, last=True))


@pytest.mark.parametrize("era", ["1.8", "2.8"])
def test_the_careful_path_gives_what_the_fast_one_gives(era: str) -> None:
    data = made.text(made.rows(era=era), {}).encode()
    tables, rows = Tables(), reader_rows.Rows()
    rows.keep(extract(list(_careful(data)), tables))
    rows.tables, rows.careful.tail = tables, [""]
    _same(kineto.finish(rows, b"", "t", "object", ""), load.read_bytes(data, "t"))


@real
@pytest.mark.parametrize(
    "name", ["qwen_generation_h100.json.gz", "dlrm_8ranks_v100/worker3_step_12.1694128201557.pt.trace.json.gz"]
)
def test_the_careful_path_gives_the_same_on_real_traces(name: str) -> None:
    data = gzip.decompress((REAL / name).read_bytes())
    tables, rows = Tables(), reader_rows.Rows()
    rows.keep(extract(list(_careful(data)), tables))
    rows.tables, rows.careful.tail = tables, [""]
    careful, fast = (
        kineto.finish(rows, data[: data.index(b'"traceEvents"')], "t", "object", ""),
        load.read_bytes(data, "t"),
    )
    assert np.array_equal(np.diff(careful.events.start_ns), np.diff(fast.events.start_ns))
    # Not the base, which stands behind the events here, and not the texts of shapes, which differ in spaces.
    assert [row[1:-2] for row in _shown(careful.events)] == [row[1:-2] for row in _shown(fast.events)]


def _blocks(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 300_000] for at in range(0, len(data), 300_000))


@pytest.mark.parametrize(
    "damage", [b"", b'"name": "aten::"mm""', b'"name": "aten::\xff"', b'"name": "aten::mm", "dur": "7"']
)
def test_a_second_thread_gives_the_same(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    made_traces.write(path, 6)
    data = path.read_bytes()
    if damage:
        data = data.replace(b'"name": "aten::mm"', damage, 40)
    alone, beside = kineto.read_blocks(_blocks(data), "t"), kineto.read_blocks(_blocks(data), "t", ahead=True)
    _same(beside, alone)
    assert beside.health == alone.health
    if not damage:
        for table in ("names", "threads", "dims_table", "dtypes_table"):  # their numbers are by which equals are sorted
            assert getattr(beside.events, table) == getattr(alone.events, table)


def test_what_ends_a_second_thread_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    if reader_rows.scanner_of(Tables()) is None:
        return

    def fails(self: Any, text: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr("advisor.trace.read.native_columns.Scanner.scan", fails)
    data = _document([_row(ts=at) for at in range(20_000)])
    with pytest.raises(MemoryError):
        kineto.read_blocks(_blocks(data), "t", ahead=True)


def test_damage_where_two_slices_meet_costs_one_event() -> None:
    rows = made.rows(40)
    source = made.text(rows).encode()
    sound = load.read_bytes(source, "t")
    for cut in range(20_000, 20_400, 7):
        damaged = source[:cut] + b"\x00" + source[cut + 1 :]
        blocks = (damaged[at : at + 5000] for at in range(0, len(damaged), 5000))
        assert len(kineto.read_blocks(blocks, "t").events) >= len(sound.events) - 1


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4000), st.integers(1, 30))
def test_where_blocks_end_changes_nothing(size: int, steps: int) -> None:
    source = made.text(made.rows(steps)).encode()
    blocks = (source[at : at + size] for at in range(0, len(source), size))
    _same(kineto.read_blocks(blocks, "t"), load.read_bytes(source, "t"))


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    made_traces.write(path, 3)
    seen: list[tuple[int, int]] = []
    load.load(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        advisor.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read"):
        advisor.load(tmp_path)


TRUTH = {
    "resnet50_workers0": 0.43965,
    "resnet50_workers4": 0.27611,
    "transformer": 0.42424,
    "resnet_fp32": 0.02557,
    "timesformer": 0.58583,
    "qwen": 0.08221,
    "resnet_check": 0.04912,
    **{
        f"worker{i}_": v for i, v in enumerate((0.54410, 0.38089, 0.66936, 0.44555, 0.57161, 0.59145, 0.66702, 0.78743))
    },
}


@real
@pytest.mark.parametrize("start", TRUTH)
def test_idle_time_of_real_traces_against_plain_json(start: str) -> None:
    """The union of device work in the steps' window, by edges in plain floats from json, and by the reader."""
    path = next(path for path in REAL.rglob("*.gz") if path.name.startswith(start))
    rows = [
        row for row in json.loads(gzip.decompress(path.read_bytes()), strict=False)["traceEvents"] if row["ph"] == "X"
    ]
    steps = [r for r in rows if r["name"].startswith("ProfilerStep") and not str(r["cat"]).startswith("gpu")]
    low, high = min(r["ts"] for r in steps), max(r["ts"] + r["dur"] for r in steps)
    busy, reach = 0.0, low
    for row in sorted((r for r in rows if r["cat"] in made.DEVICE), key=lambda r: r["ts"]):
        begin, end = max(row["ts"], reach), min(row["ts"] + row["dur"], high)
        busy, reach = busy + max(end - begin, 0), max(reach, end)
    trace = advisor.load(path)
    events, own = trace.events, trace.events.named("ProfilerStep") & trace.events.of(Category.ANNOTATION)
    window = np.array([[events.start_ns[own].min(), events.end_ns[own].max()]])
    union = intervals.union(events.start_ns[trace.device_work], events.end_ns[trace.device_work])
    idle = 1 - intervals.total(intervals.intersect(union, window)) / intervals.total(window)
    assert len(events) == len(rows)
    assert idle == pytest.approx(1 - busy / (high - low), abs=2e-5)
    assert idle == pytest.approx(TRUTH[start], abs=5e-4)


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_a_head_of_many_blocks_ends_where_its_events_start(size: int) -> None:
    text = b' \n{"note": "' + b"a" * 9000 + b'", "traceEvents" : \n [{"ph": "X"}]}'
    blocks = (text[at : at + size] for at in range(0, len(text), size))
    start = opening(blocks, "trace.json")
    assert (start.shape, start.rest + b"".join(blocks)) == ("object", b'{"ph": "X"}]}')
    assert start.head.lstrip() == text[: text.index(b'"traceEvents"')].lstrip()
