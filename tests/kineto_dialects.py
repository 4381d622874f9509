# ruff: noqa: E501 - rows are easier to compare on one line each
"""Generated traces: every era and device of Kineto's schema, and every way in which trace files are known to be odd.

Nothing is copied from a real trace. `text(rows)` writes rows as Kineto does; `VARIANTS` lists container, text and event
oddities, each with the outcome that the reader owes: `whole`, `repaired` (counted in health), `truncated`, or
`refused` (one line that says what the file is).
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
BASE_NS = 1_700_000_000_000_000_000
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}


def step_rows(number: int, at: float, era: str = "2.8") -> list[Row]:
    """One step of 100 µs: an annotation, an op with shapes, a launch, a kernel, a copy, a memset, flow arrows."""
    old = era == "1.8"
    cats = (
        {"op": "Operator", "run": "Runtime", "k": "Kernel", "c": "Memcpy", "s": "Memset"}
        if old
        else {"op": "cpu_op", "run": "cuda_runtime", "k": "kernel", "c": "gpu_memcpy", "s": "gpu_memset"}
    )
    external = "external id" if old else "External id"
    main, gpu = ("77", "stream 7") if old else (77, 7)
    host = {"pid": 42, "tid": main}
    device = {"pid": 0, "tid": gpu}
    place = {"device": 0, "context": 1, "stream": 7}
    n = number * 10
    rows: list[Row] = [
        {
            "ph": "X",
            "cat": "Operator" if old else "user_annotation",
            "name": f"ProfilerStep#{number}",
            **host,
            "ts": at,
            "dur": 100,
            "args": {external: n},
        },
        {
            "ph": "X",
            "cat": cats["op"],
            "name": "aten::linear",
            **host,
            "ts": at + 5,
            "dur": 40,
            "args": {"External id": n + 1, "Input Dims": [[8, 4], [4, 4], []], "Input type": ["float", "float", ""]},
        },
        {
            "ph": "X",
            "cat": cats["run"],
            "name": "cudaLaunchKernel",
            **host,
            "ts": at + 10,
            "dur": 5,
            "args": {external: n + 1, "cbid": 211, "correlation": n + 1},
        },
        {"ph": "s", "id": n + 1, **host, "ts": at + 10, "cat": "ac2g", "name": "ac2g"},
        {
            "ph": "X",
            "cat": cats["k"],
            "name": "void gemm<float, 4>(float*)",
            **device,
            "ts": at + 20,
            "dur": 30,
            "args": {external: n + 1, **place, "correlation": n + 1, "grid": [10, 2, 1], "block": [128, 1, 1]},
        },
        {"ph": "f", "id": n + 1, **device, "ts": at + 20, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {
            "ph": "X",
            "cat": cats["c"],
            "name": "Memcpy HtoD (Pageable -> Device)",
            **device,
            "ts": at + 60,
            "dur": 10,
            "args": {**place, "correlation": n + 2, "bytes": 4096},
        },
        {
            "ph": "X",
            "cat": cats["s"],
            "name": "Memset (Device)",
            **device,
            "ts": at + 70,
            "dur": 2,
            "args": {**place, "correlation": n + 3, "bytes": 64},
        },
    ]
    if not old:
        rows.append(
            {
                "ph": "X",
                "cat": "gpu_user_annotation",
                "name": f"ProfilerStep#{number}",
                **device,
                "ts": at + 20,
                "dur": 52,
                "args": {"External id": n},
            }
        )
    rows.append(
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            **host,
            "ts": at + 6,
            "args": {"Bytes": 512, "Total Allocated": 1024, "Total Reserved": 2048, "Device Id": 0, "Device Type": 1},
        }
    )
    if old:
        rows[-1].pop("cat")
    return rows


def rows(steps: int = 6, start: float = 1000.0, era: str = "2.8") -> list[Row]:
    """The rows of a small whole trace."""
    made = [row for number in range(steps) for row in step_rows(number, start + 110 * number, era)]
    names = [
        {"name": "thread_name", "ph": "M", "ts": start, "pid": 42, "tid": 77, "args": {"name": "thread 77 (python)"}}
    ]
    bars = [
        {
            "ph": "X",
            "cat": "Trace",
            "ts": start - 50,
            "dur": 5000,
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "name": "PyTorch Profiler (0)",
            "args": {"Op count": 0},
        },
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": start + 60_000},
    ]
    return made + names + bars


HEAD: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [
        {
            "id": 0,
            "name": "NVIDIA H100 80GB HBM3",
            "totalGlobalMem": 85017755648,
            "computeMajor": 9,
            "computeMinor": 0,
            "numSms": 132,
        }
    ],
    "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
    "record_shapes": 1,
    "baseTimeNanoseconds": BASE_NS,
}


def text(events: list[Row], head: dict[str, Any] | None = None, tail: dict[str, Any] | None = None) -> str:
    """A trace as Kineto lays it out: keys in its order, events over several lines."""
    top = "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in (HEAD if head is None else head).items())
    end = "".join(f',\n  "{key}": {json.dumps(value)}' for key, value in (tail or {"traceName": "t.json"}).items())
    return f'\n{{\n{top}  "traceEvents": [\n{",".join(map(_event, events))}\n  ]{end}\n}}\n'


def _event(row: Row) -> str:
    args = row.get("args")
    fields = ", ".join(f'"{key}": {json.dumps(value)}' for key, value in row.items() if key != "args")
    more = "" if "args" not in row else f',\n    "args": {json.dumps(args)}'
    return f"\n  {{\n    {fields}{more}\n  }}"


@dataclass(frozen=True)
class Variant:
    """An odd file and the outcome owed. lost: complete events fewer than in the sound trace; health: ids that must be said."""

    number: str
    name: str
    data: bytes
    outcome: str = "whole"
    lost: int = 0
    health: tuple[str, ...] = ()
    says: str = ""
    file: str = "t.json"
    check: Callable[[Any], bool] | None = None


def good() -> str:
    """The sound trace that the variants are made from: 6 steps."""
    return text(rows())


def _replace(old: str, new: str, count: int = 1) -> bytes:
    source = good()
    assert old in source, old
    return source.replace(old, new, count).encode()


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def containers() -> Iterator[Variant]:
    """Container and encoding (1-14)."""
    whole = good().encode()
    packed = gzip.compress(whole)
    yield Variant("1", "plain", whole)
    yield Variant("1", "gzip", packed, file="t.json.gz")
    yield Variant("1", "gzip named plain", packed)
    yield Variant("1", "plain named gzip", whole, file="t.pt.trace.json.gz")
    yield Variant("2", "zip with one trace", _zip({"a/t.json": whole}), file="t.zip")
    yield Variant("2", "zip with a gzipped trace", _zip({"t.json.gz": packed, "__MACOSX/t.json": b"x"}), file="t.zip")
    yield Variant(
        "2", "zip with two traces", _zip({"a.json": whole, "b.json": whole}), "refused", says="2 traces", file="t.zip"
    )
    yield Variant("2", "zip with hostile names", _zip({"../../../etc/t.json": whole}), file="t.zip")
    yield Variant("3", "gzip without trailer", packed[:-8], "truncated", health=("trace-truncated",), file="t.json.gz")
    yield Variant(
        "3",
        "gzip cut in half",
        gzip.compress(text(rows(4000)).encode())[:60_000],
        "some",
        health=("trace-truncated",),
        file="t.json.gz",
    )
    yield Variant(
        "3", "gzip of two members", gzip.compress(whole[:3000]) + gzip.compress(whole[3000:]), file="t.json.gz"
    )
    yield Variant("3", "gzip with zeros after it", packed + b"\0" * 512, file="t.json.gz")
    yield Variant(
        "4",
        "cut inside an event",
        whole[: whole.rindex(b'"[memory]"')],
        "truncated",
        lost=1,
        health=("trace-truncated",),
    )
    yield Variant(
        "4",
        "cut between events",
        good()[: good().rindex("Record Window End") - 30].rstrip(' {,\n"').encode(),
        "some",
        health=("trace-truncated",),
    )
    yield Variant("5", "empty", b"", "refused", says="empty file")
    yield Variant("5", "only zeros", b"\0" * 4096, "refused", says="empty file")
    yield Variant("5", "zeros at the end", whole + b"\0" * 4096)
    yield Variant("5", "the name of a file that was not yet renamed", whole, file="t.pt.trace.json.tmp")
    yield Variant("6", "bare list", json.dumps(rows()).encode())
    yield Variant("6", "bare list without its end", json.dumps(rows())[:-1].encode())
    yield Variant("6", "trailing comma", _replace("\n  ],", ",\n  ],"))
    yield Variant("7", "events first", text(rows(), {}, HEAD).encode())
    yield Variant(
        "7",
        "metadata on both sides",
        text(rows(), {"schemaVersion": 1}, {k: v for k, v in HEAD.items() if k != "schemaVersion"}).encode(),
    )
    yield Variant(
        "8",
        "execution trace",
        b'{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "x"}]}',
        "refused",
        says="execution trace",
    )
    yield Variant(
        "8",
        "memory timeline",
        b"[[1, 2, 3], [[0, 1], [0, 2]]]",
        "refused",
        says="memory timeline|without a single event|no events",
    )
    yield Variant("8", "only metadata", b'{"schemaVersion": 1, "deviceProperties": []}', "refused", says="no events")
    yield Variant("8", "no events in the list", text([]).encode(), "refused", says="no events")
    yield Variant("9", "byte order mark", b"\xef\xbb\xbf" + whole)
    yield Variant("9", "UTF-16", good().encode("utf-16"))
    yield Variant("9", "UTF-16 without a mark", good().lstrip().encode("utf-16-le"))
    yield Variant(
        "9",
        "Latin-1 byte in a name",
        whole.replace(b"aten::linear", b"aten::lin\xe9ar", 1),
        "repaired",
        health=("trace-encoding",),
    )
    yield Variant("10", "two documents", whole + whole, "refused", says="several ranks")
    yield Variant(
        "10", "interleaved writers", whole[:2500] + whole[:2600] + whole[2500:], "refused", says="several ranks"
    )
    yield Variant("11", "JSON lines", "\n".join(map(json.dumps, rows())).encode())
    yield Variant("12", "protobuf", b"\x0a\x8c\x01\x08\x01\x12" + bytes(range(100)), "refused", says="protobuf")
    yield Variant(
        "13",
        "LFS pointer",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "refused",
        says="git lfs pull",
    )
    yield Variant("13", "SQLite", b"SQLite format 3\x00" + bytes(100), "refused", says="SQLite")
    yield Variant("13", "HTML", b"<!DOCTYPE html><html></html>", "refused", says="HTML")
    yield Variant(
        "14",
        "deep nesting",
        b'{"traceEvents": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        "refused",
        says="no events|without a single",
    )
    nested = (
        '{"ph": "X", "cat": "cpu_op", "name": "deep", "ts": 1, "dur": 1, "args": {"a": '
        + "[" * 50_000
        + "]" * 50_000
        + "}}"
    )
    yield Variant(
        "14",
        "deep nesting in one event",
        good().replace('"traceEvents": [', '"traceEvents": [' + nested + ",", 1).encode(),
        "repaired",
        health=("trace-lost",),
    )


def texts() -> Iterator[Variant]:
    """Text-level defects (15-26)."""
    name = '"aten::linear"'
    yield Variant("15", "control characters in a name", _replace(name, '"aten::\x01lin\near\t"'))
    yield Variant("16", "quotes in a name", _replace(name, '"aten::"linear""'), "repaired", health=("trace-repaired",))
    yield Variant(
        "16",
        "quoted file in a name",
        _replace(name, '"Torch-Compiled Region: "a.py", line 3"'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant(
        "17", "Windows path", _replace(name, '"C:\\code\\_x\\user.py(3): f"'), "repaired", health=("trace-repaired",)
    )
    yield Variant(
        "17",
        "valid escapes beside bad ones",
        _replace(name, '"a\\"b\\c\\\\d\\u0041"'),
        "repaired",
        health=("trace-repaired",),
        check=lambda t: 'a"b\\c\\dA' in t.events.names,
    )
    yield Variant(
        "18",
        "key without its first quote",
        _replace('"tid": 77, "ts": 1005.0', 'tid": 77, "ts": 1005.0'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant(
        "19", "bare N/A", _replace('"correlation": 1,', '"correlation": N/A,'), "repaired", health=("trace-repaired",)
    )
    yield Variant(
        "20",
        "nan and inf",
        _replace('"External id": 1,', '"x": nan, "y": -inf, "External id": 1,'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant(
        "20",
        "NaN and Infinity",
        _replace('"External id": 1,', '"x": NaN, "y": -Infinity, "z": 1e999, "External id": 1,'),
    )
    yield Variant(
        "20",
        "huge exponent as a time",
        _replace('"ts": 1005.0', '"ts": 1e999999999'),
        "whole",
        lost=1,
        health=("trace-rows",),
    )
    yield Variant(
        "21",
        "call stack without quotes",
        _replace('"External id": 1,', '"Call stack": a.py(3): f;b.py(4): <module>, "External id": 1,'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant(
        "22",
        "comma before a brace",
        _replace('"cbid": 211, "correlation": 1}', '"cbid": 211, "correlation": 1, }'),
        "repaired",
        health=("trace-repaired",),
    )
    yield Variant("22", "two commas", _replace('"cbid": 211,', '"cbid": 211,,'), "repaired", health=("trace-repaired",))
    yield Variant(
        "23",
        "log lines in the tail",
        good()
        .replace('"traceName": "t.json"', '"INFO": ["INFO:2026 "quoted" x"],\n "baseTimeNanoseconds": 5')
        .replace(f'  "baseTimeNanoseconds": {BASE_NS},\n', "")
        .encode(),
        "repaired",
        health=("trace-head",),
        check=lambda t: t.events.start_ns.min() == 5 + 950_000,
    )
    yield Variant(
        "23",
        "log lines in the head",
        _replace('"record_shapes": 1,', '"WARNING": ["x "y" z", "a\\b"],\n  "record_shapes": 1,'),
        "repaired",
        health=("trace-head",),
        check=lambda t: t.meta.rank == 1 and t.meta.world_size == 2,
    )
    yield Variant(
        "24",
        "distributedInfo twice",
        _replace('"record_shapes": 1,', '"distributedInfo": {"nccl_version": "2.2"}, "record_shapes": 1,'),
        check=lambda t: t.meta.rank == 1,
    )
    yield Variant(
        "25",
        "integers beyond int64",
        _replace('"External id": 1,', '"Comms Id": 99999999999999999999999, "External id": 1,'),
    )
    yield Variant(
        "25",
        "an id beyond 2**53",
        _replace('"correlation": 1,', '"correlation": 9007199254740993,'),
        check=lambda t: 9007199254740993 in t.events.correlation,
    )
    yield Variant(
        "25", "an integer of 5,000 digits", _replace('"correlation": 1,', f'"correlation": {"9" * 5000},'), "some"
    )
    yield Variant(
        "26",
        "lone surrogate",
        _replace(name, '"aten::\\ud800linear"'),
        check=lambda t: bool("".join(t.events.names).encode()),
    )


def _with(change: Callable[[list[Row]], object], **more: Any) -> bytes:
    made = rows()
    change(made)
    return text(made, **more).encode()


def _set(index: int, **fields: Any) -> bytes:
    return _with(lambda made: made[index].update(fields))


def _without(index: int, *keys: str) -> bytes:
    return _with(lambda made: [made[index].pop(key) for key in keys])


def oddities() -> Iterator[Variant]:
    """Event-level oddities (27-48). Index 1 is the first op, 2 its launch, 4 its kernel, 6 its copy."""
    no_base = {key: value for key, value in HEAD.items() if key != "baseTimeNanoseconds"}
    yield Variant("27", "integer µs since 1970", text(rows(start=1_623_142_623_460_111), no_base).encode())
    yield Variant("27", "float µs since 1970", _absolute_floats())
    yield Variant(
        "27",
        "numbers as text",
        text(
            [{**row, "ts": str(row["ts"]), **({"dur": str(row["dur"])} if "dur" in row else {})} for row in rows()]
        ).encode(),
    )
    yield Variant(
        "28", "displayTimeUnit ns", _replace('"record_shapes": 1,', '"displayTimeUnit": "ns", "record_shapes": 1,')
    )
    yield Variant("29", "no dur", _without(4, "dur"), "repaired", health=("trace-rows",))
    yield Variant("29", "no cat", _without(1, "cat"))
    yield Variant("29", "no args", _without(4, "args"))
    yield Variant("29", "no name", _without(1, "name"))
    yield Variant("29", "null args", _set(4, args=None))
    yield Variant("29", "null name and cat", _set(1, name=None, cat=None))
    yield Variant("29", "no ts", _without(1, "ts"), "repaired", lost=1, health=("trace-rows",))
    yield Variant("30", "negative dur", _set(4, dur=-5), "repaired", health=("trace-rows",))
    yield Variant("30", "zero dur", _set(4, dur=0))
    yield Variant("30", "start and end at 0", _set(4, ts=0, dur=0))
    yield Variant("30", "dur beyond all times", _set(4, dur=1e300), "repaired", health=("trace-rows",))
    yield Variant("31", "negative ts", _set(1, ts=-17.5))
    yield Variant("32", "out of order", _with(lambda made: made.reverse()))
    yield Variant("33", "overlap on one stream", _set(6, ts=1040.0, dur=20))
    yield Variant("34", "begin and end pairs", _pairs())
    yield Variant(
        "34",
        "unmatched end",
        _with(lambda made: made.insert(0, {"ph": "E", "pid": 1, "tid": 1, "ts": 5})),
        "repaired",
        health=("trace-rows",),
    )
    yield Variant(
        "34",
        "unmatched begin",
        _with(lambda made: made.insert(0, {"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 5})),
        "repaired",
        health=("trace-rows",),
    )
    yield Variant(
        "34",
        "async, counters, instants",
        _with(
            lambda made: made.extend(
                [{"ph": p, "name": "n", "cat": "c", "id": 1, "pid": 1, "tid": 1, "ts": 5} for p in "benCPI"]
            )
        ),
    )
    yield Variant(
        "35",
        "odd pid and tid",
        _with(
            lambda made: [
                made[i].update(pid=p, tid=t)
                for i, (p, t) in enumerate([("Spans", ""), (-1, 0), (2**40, "GPU 0 Counters"), (1.5, None)])
            ]
        ),
    )
    yield Variant("36", "no steps", text([row for row in rows() if "ProfilerStep" not in row["name"]]).encode())
    yield Variant("36", "one step", text(rows(1)).encode())
    yield Variant(
        "36",
        "step numbers with gaps, windows apart",
        text(rows(2) + [row for at in (3, 9) for row in step_rows(at, 9000 + 110 * at)]).encode(),
        check=lambda t: sum(name.startswith("ProfilerStep#") for name in t.events.names) == 4,
    )
    yield Variant(
        "37",
        "own step markers",
        _with(
            lambda made: [
                row.update(name=row["name"].replace("ProfilerStep#", "iteration "))
                for row in made
                if "ProfilerStep" in row["name"]
            ]
        ),
    )
    yield Variant(
        "38",
        "kernel without launch, 421 kernels of one launch",
        _with(
            lambda made: made.extend(
                [
                    {**made[4], "ts": 2000 + i, "dur": 0.5, "args": {**made[4]["args"], "correlation": 1}}
                    for i in range(421)
                ]
                + [{**made[4], "args": {"device": 0, "stream": 9, "correlation": None}}]
            )
        ),
    )
    yield Variant("39", "arrows without an end", text([row for row in rows() if row["ph"] != "f"]).encode())
    yield Variant("39", "arrows of one id", _with(lambda made: [row.update(id=1) for row in made if row["ph"] in "sf"]))
    yield Variant("40", "only CPU events", text([row for row in rows() if row.get("pid") != 0]).encode())
    yield Variant("40", "only GPU events", text([row for row in rows() if row.get("pid") == 0]).encode())
    yield Variant(
        "41",
        "rank as text",
        text(rows(), {**HEAD, "distributedInfo": {"rank": "1", "world_size": "2"}}).encode(),
        check=lambda t: t.meta.rank == 1,
    )
    yield Variant(
        "41",
        "distributedInfo without rank",
        text(rows(), {**HEAD, "distributedInfo": {"backend": "nccl"}}).encode(),
        check=lambda t: t.meta.rank is None,
    )
    yield Variant(
        "42",
        "keys of other tools",
        text(
            rows(), {"metadata": {"errors": {}, "traceEventsX": []}, **HEAD, "roctracer_version": 4.1, "tw_job": "x"}
        ).encode(),
    )
    yield Variant(
        "43",
        "odd shapes",
        _set(
            1,
            args={
                "Input Dims": [[[2, 2], [3]], "s0", [], None],
                "Input type": "repr [",
                "Concrete Inputs": ["", "[1, 2"],
            },
        ),
    )
    yield Variant(
        "44",
        "numbers as text in args",
        _set(4, args={"device": "0", "stream": "7", "correlation": "1", "grid": ["1", 2, 3]}),
        check=lambda t: 7 in t.events.stream,
    )
    yield Variant(
        "45",
        "long and strange names",
        _set(1, name='<b>&"é😀_ZN2at' + "x" * 3000),
        check=lambda t: max(map(len, t.events.names)) > 3000,
    )
    yield Variant(
        "46",
        "overlay of another tool",
        _with(lambda made: [row.setdefault("args", {}).update(critical=1) for row in made]),
    )
    yield Variant(
        "47",
        "marks of the recording",
        _with(lambda made: made.append({"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "ts": 999})),
        check=lambda t: not t.device_work[t.events.named("PyTorch Profiler")].any(),
    )
    yield Variant(
        "48",
        "thousands of memory rows",
        _with(lambda made: made.extend([next(row for row in made if row["name"] == "[memory]")] * 28_010)),
        check=lambda t: len(t.memory.time_ns) == 28_016,
    )
    yield Variant(
        "33",
        "a list of objects in args",
        _set(1, args={"External id": 1, "inputs": [{"name": "a", "v": 1}, {"name": "b", "v": 2}]}),
    )


def _absolute_floats() -> bytes:
    """µs since 1970 with three decimals: more digits than a float holds."""
    source = text(rows(), {key: value for key, value in HEAD.items() if key != "baseTimeNanoseconds"})
    for row in rows():
        source = source.replace(
            f'"ts": {row["ts"]}', f'"ts": 171219549551{int(row["ts"]):04d}.{int(row["ts"]) % 1000:03d}'
        )
    return source.encode()


def _pairs() -> bytes:
    made: list[Row] = []
    for row in rows():
        if row["ph"] == "X":
            made.append({**row, "ph": "B"})
            made.append({"ph": "E", "pid": row["pid"], "tid": row["tid"], "ts": row["ts"] + row["dur"]})
        else:
            made.append(row)
    # On each thread the last one begun ends first, as the format wants it.
    made.sort(key=lambda row: (row["ts"], row["ph"] != "E"))
    return text(made).encode()


VARIANTS: tuple[Variant, ...] = (*containers(), *texts(), *oddities())
