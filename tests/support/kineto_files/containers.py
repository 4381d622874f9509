"""Odd containers and encodings of traces: compressed, cut off, joined, misnamed."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Iterator

from kineto_files.dialects import HEAD, Variant, good, replaced, rows, text


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
    yield Variant("6", "trailing comma", replaced("\n  ],", ",\n  ],"))
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
    yield Variant(
        "8", "only metadata", b'{"schemaVersion": 1, "deviceProperties": []}', "refused", says="without events"
    )
    yield Variant("8", "no events in the list", text([]).encode(), "refused", says="without events")
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
