"""What a track of a Perfetto trace is: a thread of the host, or a stream of a GPU, told by its descriptor and name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from advisor.trace.formats.wire import message, number, text

# protos/perfetto/trace/track_event/{track,process,thread}_descriptor.proto
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _STATIC_NAME = 1, 2, 3, 4, 5, 10
_PID, _TID, _THREAD_NAME, _PROCESS_NAME = 1, 2, 5, 6

# "stream 7", "CUDA stream #7", rocprofv3's `STREAM ["0"]`; with a device also "queue": "COMPUTE AGENT [2] QUEUE [0]".
_STREAM = re.compile(r"\bstream\W{0,4}(\d+)", re.IGNORECASE)
_QUEUE = re.compile(r"\bqueue\W{0,4}(\d+)", re.IGNORECASE)
_DEVICE = re.compile(r"\b(?:gpu|cuda|device|agent)\W{0,4}(\d+)", re.IGNORECASE)
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Track:
    """A track as its descriptor says; pid and tid are None where it belongs to no thread."""

    uuid: int
    name: str = ""
    parent: int = 0
    pid: int | None = None
    tid: int | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """Where rows of a track go: pid, tid and name of the thread; device and stream, -1 on the host."""

    pid: int | str
    tid: int | str
    name: str
    device: int = -1
    stream: int = -1


def track_of(data: bytes) -> Track:
    """A TrackDescriptor. Raises DamagedError."""
    found = message(data)
    name = text(found.get(_NAME)) or text(found.get(_STATIC_NAME))
    pid = tid = None
    thread, process = found.get(_THREAD), found.get(_PROCESS)
    if isinstance(process, bytes):
        of_process = message(process)
        pid, name = number(of_process.get(_PID)), name or text(of_process.get(_PROCESS_NAME))
    if isinstance(thread, bytes):
        of_thread = message(thread)
        pid, tid = number(of_thread.get(_PID)), number(of_thread.get(_TID))
        name = name or text(of_thread.get(_THREAD_NAME))
    return Track(number(found.get(_UUID)), name, number(found.get(_PARENT)), pid, tid)


def lane_of(uuid: int, tracks: Mapping[int, Track]) -> Lane:
    """The lane of a track by what it and those above it say."""
    line = _above(uuid, tracks)
    own, thread = line[0], next((track for track in line if track.tid is not None), None)
    pid = next((track.pid for track in line if track.pid is not None), 0)
    names = " ".join(track.name for track in line)
    device, stream = _DEVICE.search(names), _STREAM.search(names)
    if thread is None and (device or stream):
        at = int(device[1]) if device else 0
        found = stream or _QUEUE.search(names)
        number_of = int(found[1]) if found else -1
        return Lane(at, own.name if number_of < 0 else number_of, own.name, at, number_of)
    if thread is not None and thread is own:
        return Lane(pid, int(thread.tid or 0), own.name)
    return Lane(pid, own.name or f"track {uuid}", own.name)


def _above(uuid: int, tracks: Mapping[int, Track]) -> list[Track]:
    """The track and those above it, as far as they are known."""
    line = [tracks.get(uuid, Track(uuid))]
    while line[-1].parent in tracks and len(line) < _DEEPEST:
        line.append(tracks[line[-1].parent])
    return line
