"""Perfetto traces, byte by byte: as much of protobuf's wire format as a trace of slices needs, and no library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

from device_loops import Loop, Work

from advisor.trace.numbers import nanoseconds

PID, TID = 4711, 4712
THREAD, COMPUTE, SIDE = 11, 12, 13


def varint(value: int) -> bytes:
    """An unsigned or negative integer."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def integer(number: int, value: int) -> bytes:
    """A field of an integer."""
    return varint(number << 3) + varint(value)


def block(number: int, value: bytes | str) -> bytes:
    """A field of a text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def double(number: int, value: float) -> bytes:
    """A field of a double."""
    return varint(number << 3 | 1) + struct.pack("<d", value)


def packet(*parts: bytes, sequence: int = 1) -> bytes:
    """A packet of a trace."""
    return block(1, b"".join(parts) + integer(10, sequence))


def thread_track(uuid: int, name: str = "MainThread") -> bytes:
    """The descriptor of a thread's track."""
    return packet(block(60, integer(1, uuid) + block(4, integer(1, PID) + integer(2, TID) + block(5, name))))


def named_track(uuid: int, name: str, parent: int = 0) -> bytes:
    """The descriptor of a track that belongs to no thread."""
    return packet(block(60, integer(1, uuid) + block(2, name) + (integer(5, parent) if parent else b"")))


def interned(**texts: dict[int, str]) -> bytes:
    """Texts by number: categories, names, keys (of annotations), strings."""
    numbers = {"categories": 1, "names": 2, "keys": 3, "strings": 29}
    each = [(numbers[kind], at, text) for kind, some in texts.items() for at, text in some.items()]
    return block(12, b"".join(block(kind, integer(1, at) + block(2, text)) for kind, at, text in each))


def begin(time: int, track: int, *parts: bytes, sequence: int = 1) -> bytes:
    """A slice begins. parts: fields of the event."""
    return packet(integer(8, time), block(11, integer(9, 1) + integer(11, track) + b"".join(parts)), sequence=sequence)


def end(time: int, track: int, sequence: int = 1) -> bytes:
    """The slice that was begun last on a track ends."""
    return packet(integer(8, time), block(11, integer(9, 2) + integer(11, track)), sequence=sequence)


def annotation(key: str, value: int | str | float) -> bytes:
    """An annotation of an event."""
    if isinstance(value, float):
        return block(4, block(10, key) + double(5, value))
    held = block(6, value) if isinstance(value, str) else integer(4, value)
    return block(4, block(10, key) + held)


def _name(work: Work) -> str:
    return work.name or ("Memcpy HtoD (Pageable -> Device)" if work.kind == "memcpy" else "Memset (Device)")


def slices(one: Loop) -> bytes:
    """The loop as an SDK would write it: a thread and two streams by the names of their tracks, names interned."""
    names = sorted({_name(work) for work in one.works} | {call.name for call in one.calls})
    number = {name: at for at, name in enumerate(names, 1)}
    out = [
        packet(integer(13, 1), interned(names={at: name for name, at in number.items()}, categories={1: "app"})),
        thread_track(THREAD),
        named_track(9, "GPU 0"),
        named_track(COMPUTE, "stream 7", parent=9),
        named_track(SIDE, "stream 20", parent=9),
    ]
    timed: list[tuple[int, int, bytes]] = []
    for step in one.steps:
        timed.append((step.start, 0, begin(step.start, THREAD, block(23, step.name), block(22, "app"))))
        timed.append((step.end, 3, end(step.end, THREAD)))
    for call in one.calls:
        fields = (integer(10, number[call.name]), annotation("correlation", call.correlation), integer(3, 1))
        timed.append((call.start, 1, begin(call.start, THREAD, *fields)))
        timed.append((call.end, 2, end(call.end, THREAD)))
    out += [data for _, _, data in sorted(timed)]
    for work in one.works:  # of other tracks, so not in order of time with the thread's
        track = COMPUTE if work.stream == 7 else SIDE
        fields = (integer(10, number[_name(work)]), annotation("correlation", work.correlation))
        fields += (annotation("bytes", work.bytes),) if work.bytes >= 0 else ()
        out += [begin(work.start, track, *fields), end(work.end, track)]
    return b"".join(out)


def rocprof(one: Loop) -> bytes:
    """The loop as rocprofv3 would: categories, queues of agents, copies on tracks of their own."""
    out = [
        thread_track(THREAD),
        named_track(COMPUTE, "COMPUTE AGENT [2] QUEUE [0] (GPU)"),
        named_track(SIDE, "COMPUTE AGENT [2] QUEUE [1] (GPU)"),
        named_track(14, "COPY to AGENT [2] THREAD [0] (GPU)"),
    ]
    for span in one.steps:
        out += [begin(span.start, THREAD, block(22, "marker_api"), block(23, span.name))]
        for call in one.calls:
            if span.start <= call.start < span.end:
                name = call.name.replace("cuda", "hip")
                fields = (block(22, "hip_api"), block(23, name), annotation("corr_id", call.correlation))
                out += [begin(call.start, THREAD, *fields), end(call.end, THREAD)]
        out += [end(span.end, THREAD)]
    for work in one.works:
        is_copy = work.kind == "memcpy"
        track = 14 if is_copy else COMPUTE if work.stream == 7 else SIDE
        fields = [block(22, "memory_copy" if is_copy else "kernel_dispatch"), annotation("corr_id", work.correlation)]
        fields += [block(23, "MEMORY_COPY_HOST_TO_DEVICE" if is_copy else work.name or "fillBuffer")]
        fields += [annotation("copy_bytes", work.bytes)] if is_copy else []
        out += [begin(work.start, track, *fields), end(work.end, track)]
    return b"".join(out)


def bundled(packets: Iterable[bytes]) -> bytes:
    """Packets deflated into one, as Perfetto's service does on request."""
    return packet(block(50, zlib.compress(b"".join(packets))))


def of_kineto(rows: Iterable[dict[str, Any]]) -> bytes:
    """Complete events of Kineto's JSON as slices: a track for each thread and stream, categories and `args` kept.

    Only rows that nest: what begins within a row and ends after it has no place on a track.
    """
    out, tracks = [], {}
    for row in rows:
        tracks.setdefault((str(row["pid"]), str(row["tid"])), []).append(row)
    for uuid, ((pid, tid), lane) in enumerate(tracks.items(), 100):
        device = "stream" in lane[0].get("args", {})
        out.append(named_track(uuid, f"GPU {pid} stream {tid}") if device else thread_track(uuid, tid))
        open_ends: list[int] = []
        for row in sorted(lane, key=lambda row: (nanoseconds(row["ts"]), -nanoseconds(row["dur"]))):
            start, stop = nanoseconds(row["ts"]), nanoseconds(row["ts"]) + nanoseconds(row["dur"])
            while open_ends and open_ends[-1] <= start:
                out.append(end(open_ends.pop(), uuid))
            assert not open_ends or stop <= open_ends[-1]
            args = [annotation(key, value) for key, value in row.get("args", {}).items() if not isinstance(value, list)]
            out.append(begin(start, uuid, block(22, row["cat"]), block(23, row["name"]), *args))
            open_ends.append(stop)
        out += [end(time, uuid) for time in reversed(open_ends)]
    return b"".join(out)
