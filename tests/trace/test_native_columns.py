"""The extension gives what decoding to structs gives, or refuses: on odd values, hostile text, and every split."""

from __future__ import annotations

import gzip
import json
import os
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import kineto_files.dialects as made
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.trace.read import kineto, load
from advisor.trace.read import rows as reader_rows
from advisor.trace.read.extract import extract
from advisor.trace.schema import decoder
from advisor.trace.tables import Tables

_scan = pytest.importorskip("advisor.trace.read._scan", reason="the extension was not built")
scanned = pytest.importorskip("advisor.trace.read.native_columns")
REAL = Path(__file__).parents[2].parent / "shared" / "traces"

# The tables of a file, and the columns that hold numbers in them.
TABLES = {"name": "names", "thread": "threads", "stack": "stacks", "collective": "collectives", "waited": "waits"}
TABLES |= {name: name for name in ("dims", "dtypes", "strides", "values")}
ROW = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2}
NUMBERS = [
    0,
    -1,
    7,
    1.5,
    0.0005,
    1e3,
    2**53 - 1,
    2**53,
    10**30,
    None,
    True,
    "7",
    "",
    [],
    {},
    "x",
    -0.25,
    1234567890123456.789,
]
TEXTS = [
    "",
    "a",
    "b" * 9,
    'say "so"',
    "back\\slash",
    "é",
    "\u2028",
    "\ud800",
    "a\tb",
    None,
    5,
    ["x"],
    {"a": [1, {"b": []}]},
]
ARGS = ["External id", "external id", "correlation", "device", "stream", "bytes", "Sequence number", "Fwd thread id"]
ARGS += ["Python id", "Python parent id", "wait_on_stream", "wait_on_cuda_event_record_corr_id", "Bytes", "Device Id"]
ARGS += ["Total Allocated", "Total Reserved", "Device Type", "In msg nelems", "Group size"]
JSON_ARGS = ["Input Dims", "Input dims", "Input type", "Input Strides", "Concrete Inputs", "other", "dtype"]
JSON_ARGS += ["Process Group Name"]
TEXT_ARGS = ["Call stack", "Collective name"]
CATEGORIES = ["cpu_op", "kernel", "python_function", "cuda_runtime", "user_annotation", "odd"]


def rows_of(texts: Any, numbers: Any, grids: Any, names: Any) -> Any:
    """Rows with these kinds of values in all fields."""
    args = st.dictionaries(st.sampled_from(ARGS), numbers, max_size=4)
    more = st.dictionaries(st.sampled_from(JSON_ARGS), texts | st.lists(st.lists(st.integers(0, 9))), max_size=3)
    named = st.dictionaries(st.sampled_from(TEXT_ARGS), names, max_size=1)
    joined = st.builds(lambda a, b, c, d: {**a, **b, **c, "grid": d}, args, more, named, grids)
    fields = {"cat": st.sampled_from(CATEGORIES), "pid": numbers, "tid": numbers | names, "id": numbers | texts}
    fields |= {"name": names | st.sampled_from(["aten::mm", "[memory]", "thread_name"]), "ts": numbers, "dur": numbers}
    phases = st.sampled_from(["X"] * 6 + ["i", "M", "s", "f", "C"])
    fields |= {"args": st.none() | joined}
    return st.builds(lambda row, ph: {"ph": ph, **row}, st.fixed_dictionaries({}, optional=fields), phases)


def by_structs(text: bytes, tables: Tables) -> Any:
    """The columns of a slice by the other way; None where that refuses it."""
    for exact in (False, True):
        try:
            return extract(decoder(exact).decode(text), tables)
        except reader_rows.TooLargeError:
            continue
        except reader_rows.REFUSED:
            return None
    return None


def resolved(columns: Any, tables: Tables) -> dict[str, list[Any]]:
    """Columns with texts in place of their numbers; absent ones are left out."""
    shown = {}
    for name, column in columns.items():
        values = column.tolist()
        if name in TABLES:
            texts = list(getattr(tables, TABLES[name]))
            shift = 1 if texts[:1] == [b""] else 0  # tables of JSON text start with what is absent
            values = [texts[value + shift] if value >= 0 else None for value in values]
        if any(value not in (None, -1) for value in values) or name in ("name", "thread"):
            shown[name] = values
    return shown


def check(text: bytes) -> bool:
    """Whether the extension took the slice; it must give what the other way gives then."""
    tables, others = Tables(), Tables()
    scanner = scanned.Scanner(tables)
    found = scanner.scan(text)
    if found is None or found.tail() is not None:
        return False
    scanner.learn(found)
    try:
        columns = scanner.columns(found)
    except reader_rows.REFUSED:
        return False
    other = by_structs(text, others)
    assert other is not None, "taken by the extension alone"
    for mine, theirs in zip(columns, other, strict=True):
        assert resolved(mine, tables) == resolved(theirs, others)
    assert (tables.dropped, tables.thread_names) == (others.dropped, others.thread_names)
    return True


odd = rows_of(
    st.sampled_from(TEXTS),
    st.sampled_from(NUMBERS),
    st.none() | st.lists(st.integers(-1, 2**32), max_size=4),
    st.sampled_from(TEXTS),
)
plain = rows_of(
    st.sampled_from(TEXTS[:6]),
    st.sampled_from([0, 5, -1, 2**50, None, "7", "-12"]),
    st.none() | st.lists(st.integers(0, 2**31), min_size=3, max_size=3),
    st.sampled_from(TEXTS[:6]),
)


@pytest.mark.complete
@settings(max_examples=600)
@given(st.lists(odd, max_size=5), st.sampled_from([None, 1, "\t"]))
def test_odd_rows_are_read_alike_or_refused(rows: list[Any], indent: Any) -> None:
    check(json.dumps(rows, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@settings(max_examples=400)
@given(st.lists(plain, max_size=6), st.sampled_from([None, 1, "\t"]))
def test_plain_rows_are_taken_and_read_alike(rows: list[Any], indent: Any) -> None:
    long = [{**row, "unknown": "." * 48} for row in rows]
    assert check(json.dumps(long, indent=indent).encode())


@pytest.mark.parametrize("era", ["1.8", "2.8"])
def test_rows_as_kineto_writes_them_are_taken(era: str) -> None:
    assert check(json.dumps(made.rows(era=era), indent=2).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"[", b"[]]", b"[{]", b"[{}]", b'[{"ph":"X"}', b'[{"ph":"X",}]', b'[{"ph":"X"},]', b'[{"ph":"X" "ts":1}]',
        b'[{"ph":"X","ts":01}]', b'[{"ph":"X","ts":1.}]', b'[{"ph":"X","ts":-}]', b'[{"ph":"X","ts":1e}]',
        b'[{"ph":"X","ts":+1}]', b'[{"ph":"X","ts":.5}]', b'[{"ph":"X","name":"a\nb"}]', b'[{"ph":"X","name":"\\x"}]',
        b'[{"ph":"X","name":"\\u12g4"}]', b'[{"ph":"X","name":"a}]', b'[{"ph":"X","id":tru}]',
        b'[{"ph":"X","id":[1,]}]',
        b'[{"ph":"X","id":{"a"}}]', b'[{"ph":"X","id":' + b"[" * 200 + b"]" * 200 + b"}]", b'[{"ph":"X","args":[]}]',
        b'[{"ph":"X","ph":"i"}]', b'[{"p\\u0068":"X"}]', b'[{"ph":"X","args":{},"args":{}}]', b'[{"ph":"X","id":NaN}]',
        b'[{"ph":"\x00"}]', b'[{"ph":"X","name":"\xff"}]', b'[{"ph":"X","ts":12345678901234567890}]', b"[null]", b"[1]",

        b'[{"ph":"XX"}]', b'[{"ph":""}]', b'[{"ph":"X","args":{"grid":[1,2]}}]',
        b'[{"ph":"X","args":{"grid":[1,2,-3]}}]',
    ],
)  # fmt: skip
def test_what_is_not_plain_is_refused(text: bytes) -> None:
    assert not check(text)


AGAIN = [
    {**ROW, "args": {"External id": 12345678, "Input Dims": [[8, 4], []], "Input type": ["float", ""], "Ev Idx": 5}},
    {"ph": "X", "cat": "kernel", "name": "k" * 40, "pid": 0, "tid": 7, "ts": 1234567890123.456, "dur": 1.5,
     "args": {"stream": 7, "grid": [1, 2, 3], "Concrete Inputs": ["", "[1]"], "Input Strides": [[4, 1]]}},
    {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 2, "args": {"Bytes": -512, "Device Id": 0}},
    {"ph": "s", "id": 3, "pid": 1, "tid": 1, "ts": 2.125, "cat": "ac2g", "name": "ac2g"},
]  # fmt: skip


@pytest.mark.parametrize("row", AGAIN, ids=["op", "kernel", "memory", "flow"])
@pytest.mark.parametrize("indent", [None, 1])
def test_what_comes_again_with_one_byte_changed_is_read_alike_or_refused(row: Any, indent: Any) -> None:
    """Keys, lists, names and places that were seen are not read again, but compared."""
    text = json.dumps(row, indent=indent).encode()
    for at in range(len(text)):
        for byte in b'"\\,:[]{}0 9x-':
            changed = text[:at] + bytes([byte]) + text[at + 1 :]
            check(b"[%s,%s,%s,%s]" % (text, text, changed, text))


def test_numbers_of_all_lengths_are_exact() -> None:
    numbers = [int("9876543219876543219"[:length]) for length in range(1, 17)]
    rows = [{**ROW, "ts": number, "args": {"External id": number}} for number in numbers if number < 2**53]
    rows += [{**ROW, "ts": number / 1000} for number in numbers[:13]]
    assert check(json.dumps(rows).encode())
    for at in range(12):
        for byte in b"/:.e- \x00\xff":
            digits = b"123456789012"
            check(b'[{"ph":"X","ts":%s}]' % (digits[:at] + bytes([byte]) + digits[at + 1 :]))


def test_more_keys_than_are_kept_in_mind_are_read_alike() -> None:
    rows = [{**ROW, "ts": at, "args": {f"key {(at * 7 + k) % 90}": k for k in range(9)}} for at in range(200)]
    rows += [{**ROW, "ts": at, "args": {"x" * (at % 60): 1, "External id": at}} for at in range(200)]
    mixed = [json.dumps(row, indent=[None, 1, "\t"][at % 3]) for at, row in enumerate(rows)]
    assert check(f"[{','.join(mixed)}]".encode())


def test_every_beginning_of_a_slice_is_refused() -> None:
    whole = json.dumps(made.rows()[:12], indent=1).encode()
    scanner = scanned.Scanner(Tables())
    assert all(scanner.scan(whole[:end]) is None for end in range(len(whole)))
    assert scanner.scan(whole) is not None


def test_what_follows_the_list_is_kept() -> None:
    found = scanned.Scanner(Tables()).scan(json.dumps(made.rows()[:3]).encode() + b', "traceName": "x"}]')
    assert found.tail() == ', "traceName": "x"}'


def test_more_rows_than_a_slice_has_room_for_are_left_to_others() -> None:
    rows = b'{"ph":"X","ts":1},' * (scanned.MOST_ROWS + 1)
    assert not check(b"[" + rows[:-1] + b"]")
    assert len(load.read_bytes(b'{"traceEvents": [' + rows[:-1] + b"]}", "t").events) == scanned.MOST_ROWS + 1


def test_times_of_every_era_are_exact() -> None:
    text = b'[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%s,"dur":%s}]'
    for ts, dur, ns in (
        (b"1712195495519689.047", b"63.8130", 1712195495519689047),
        (b"1621401187223005", b"0.001", None),
    ):
        tables = Tables()
        scanner = scanned.Scanner(tables)
        found = scanner.scan(text % (ts, dur))
        scanner.learn(found)
        columns, _ = scanner.columns(found)
        assert columns["start_ns"].tolist() == [ns or 1621401187223005000]
        assert columns["dur_ns"].tolist() == [63813 if ns else 1]


def test_a_name_seen_by_both_ways_has_one_number() -> None:
    """A damaged event sends its slice the other way; names before, in and after it stay one."""
    first = [{**ROW, "ts": at, "name": f"op{at % 7}"} for at in range(2_000)]
    other = [{**ROW, "ts": 2_000 + at, "dur": 1e3, "name": f"op{at % 9}"} for at in range(2_000)]
    data = json.dumps({"traceEvents": [*first, *other, *first]}).encode()
    trace = kineto.read_blocks((data[at : at + 40_000] for at in range(0, len(data), 40_000)), "t")
    assert sorted(trace.events.names) == [f"op{at}" for at in range(9)]
    assert len(trace.events) == 6_000


def test_texts_beyond_the_first_tables_are_told_apart() -> None:
    rows = [{**ROW, "ts": at, "name": f"name {at} " + "x" * (at % 90), "tid": at} for at in range(40_000)]
    events = load.read_bytes(json.dumps({"traceEvents": rows}).encode(), "t").events
    assert [events.names[at] for at in events.name] == [row["name"] for row in rows]
    assert [int(events.threads[at].tid) for at in events.thread] == list(range(40_000))


def test_two_threads_cannot_read_with_one_scanner() -> None:
    scanner = _scan.Scanner(seed=int.from_bytes(os.urandom(8), "little"))
    text = json.dumps([ROW] * 50_000).encode()
    refused, start = [], threading.Barrier(2)

    def read() -> None:
        rooms = (
            np.empty((fields, 60_000), np.int64) for fields in (len(_scan.EVENT_FIELDS), len(_scan.MEMORY_FIELDS), 2)
        )
        room = tuple(rooms)
        start.wait()
        for _ in range(2_000):
            if refused:
                return
            try:
                assert scanner.read(text, *room) is not None
            except RuntimeError:
                refused.append(1)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = scanner.fresh()[_scan.TABLES.index("names")]
    assert names == [b"aten::mm"]
    assert refused, "both read at the same time"


@pytest.mark.complete
@pytest.mark.skipif(not REAL.is_dir(), reason="the real traces do not lie beside this checkout")
def test_real_traces_are_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """No slice of a real trace needs the slower way, and both give the same."""
    decoded: list[int] = []
    plain = reader_rows.Rows.add_decoded

    def noted(self: reader_rows.Rows, piece: bytes, last: bool = False) -> None:
        decoded.append(len(piece))
        plain(self, piece, last)

    for path in sorted(REAL.rglob("*.gz")):
        data = gzip.decompress(path.read_bytes())
        with monkeypatch.context() as patched:
            patched.setattr(reader_rows.Rows, "add_decoded", noted)
            fast = load.read_bytes(data, "t")
        with monkeypatch.context() as patched:
            patched.setattr(reader_rows, "scanner_of", lambda tables: None)
            slow = load.read_bytes(data, "t")
        for field in fields(fast.events):
            mine, theirs = getattr(fast.events, field.name), getattr(slow.events, field.name)
            assert np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs, (
                path.name,
                field.name,
            )
        assert (fast.health, fast.meta) == (slow.health, slow.meta)
    assert not decoded
