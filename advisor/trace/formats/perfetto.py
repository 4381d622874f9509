"""Perfetto's protobuf traces (`.pftrace`): slices on tracks, as rows of host threads and streams of GPUs.

Written by Perfetto's SDK and by tools that use it, rocprofv3 (`--output-format pftrace`) among them. Slices whose
category is one of Kineto's or of rocprofv3's are what that says; others are told by their track and their name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from advisor.errors import InputError
from advisor.model import Health
from advisor.trace.dialects import category
from advisor.trace.events import DEVICE_WORK, Category
from advisor.trace.formats.converted import SLICE_ROWS, Format
from advisor.trace.formats.perfetto_packets import Mark, Packets, holds_events, packets_of
from advisor.trace.formats.perfetto_tracks import Lane, lane_of
from advisor.trace.formats.wire import DamagedError
from advisor.trace.repair.event_by_event import row_of
from advisor.trace.schema import LabelArgs, LabelRow, Row

# Categories of rocprofv3 (source/lib/output/generatePerfetto.cpp of rocprofiler-sdk), and what Kineto calls them. Calls
# of HSA lie below those of HIP and would count twice.
_CATEGORIES = {
    "kernel_dispatch": "kernel",
    "memory_copy": "gpu_memcpy",
    "hip_api": "cuda_runtime",
    "hip_runtime_api": "cuda_runtime",
    "hsa_api": "hsa_api",
    "marker_api": "user_annotation",
    "rccl_api": "user_annotation",
}
_COPY = re.compile(r"memcpy|memory_?copy|\bcopy\b", re.IGNORECASE)
_DIRECTION = re.compile(r"MEMORY_COPY_(HOST|DEVICE)_TO_(HOST|DEVICE)")
_OP = re.compile(r"(aten|c10d|torch|autograd|prims|nccl)::")
_CALL = re.compile(r"(cuda|hip|cu)[A-Z]")
# Keys of annotations that mean what a key of Kineto's `args` means.
_ALIASES = {"corr_id": "correlation", "correlation_id": "correlation", "copy_bytes": "bytes"}
# Streams of tracks whose name states no number: above those that drivers give.
_UNNUMBERED = 1000


@dataclass(slots=True)
class PerfettoTrace:
    """A Perfetto trace that is read from blocks of bytes; a `Converted`."""

    blocks: Iterator[bytes]
    path: str
    ended_early: Callable[[], str] = str  # asked after the last block
    format: Format = "perfetto"
    base_ns: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    cut_short: str = ""
    _found: Packets = field(default_factory=Packets)
    _damaged: int = 0
    _unpaired: int = 0
    _on_device: int = 0

    def slices(self) -> Iterator[list[Any]]:
        """The rows. Raises InputError where no packet holds a track event."""
        self._read()
        times = [mark.time_ns for marks in self._found.marks.values() for mark in marks]
        if not times:
            raise InputError(
                _nothing(self.path, self.cut_short or ("its packets are damaged" if self._damaged else ""))
            )
        self.base_ns = min(times)
        rows: list[Any] = []
        for place, uuid in enumerate(self._found.marks):
            lane = lane_of(uuid, self._found.tracks)
            for row in self._rows(lane, uuid, _UNNUMBERED + place):
                rows.append(row)
                if len(rows) >= SLICE_ROWS:
                    yield rows
                    rows = []
            if lane.name:
                rows.append(LabelRow("thread_name", lane.pid, lane.tid, LabelArgs(lane.name)))
        yield rows

    def health(self) -> tuple[Health, ...]:
        """What such a trace lacks, and what of it was not read."""
        lacks = "it contains ops, shapes and Python lines only where its writer annotated them"
        if not self._on_device:
            lacks = f"no track is named like a GPU stream, so device work is unknown; {lacks}"
        said = [Health("trace-format", "note", f"a Perfetto trace: {lacks}; rules that need more are skipped")]
        found = self._found
        counts = (
            (found.others, "packet", "of other kinds (scheduling, samples) not read"),
            (self._damaged, "damaged packet", "that could not be read"),
            (found.nameless, "event", "without a name: the packet that defined it is not in the file"),
            (found.timeless, "event", "without a time stamp left out"),
            (self._unpaired, "slice", "without a beginning or an end left out"),
        )
        for count, noun, rest in counts:
            if count:
                said.append(Health("trace-rows", "note", f"{count:,} {noun}{'s' * (count != 1)} {rest}"))
        return tuple(said)

    def _read(self) -> None:
        try:
            for packet in packets_of(self.blocks):
                self._add(packet)
        except DamagedError as failure:
            self.cut_short = f"the file is cut off or damaged ({failure})"
        self.cut_short = self.ended_early() or self.cut_short

    def _add(self, packet: bytes) -> None:
        try:
            self._found.add(packet)
        except DamagedError:
            self._damaged += 1

    def _rows(self, lane: Lane, uuid: int, stream: int) -> Iterator[Row]:
        for begin, end_ns, annotated in self._slices(uuid):
            raw = kind_of(begin.category, begin.name, lane)
            where, place = lane, {}
            if category(raw) in DEVICE_WORK:
                self._on_device += 1
                if lane.stream < 0:
                    where = Lane(max(lane.device, 0), stream, lane.name, max(lane.device, 0), stream)
                place = {"device": where.device, "stream": where.stream}
            row = {
                "cat": raw,
                "name": _DIRECTION.sub(_kineto_copy, begin.name),
                "pid": where.pid,
                "tid": where.tid,
                "ts": _us(begin.time_ns - self.base_ns),
                "dur": _us(end_ns - begin.time_ns),
                "args": place | {_ALIASES.get(key, key): value for key, value in annotated.items()},
            }
            yield row_of(row)

    def _slices(self, uuid: int) -> Iterator[tuple[Mark, int, dict[str, Any]]]:
        """Beginnings with their ends: an end closes what was begun last on its track, as in Perfetto itself."""
        begun: list[Mark] = []
        for mark in sorted(self._found.marks[uuid], key=lambda mark: mark.time_ns):
            if mark.dur_ns >= 0:
                yield mark, mark.time_ns + mark.dur_ns, mark.args or {}
            elif mark.begins:
                begun.append(mark)
            elif begun:
                begin = begun.pop()
                yield begin, mark.time_ns, {**(begin.args or {}), **(mark.args or {})}
            else:
                self._unpaired += 1
        self._unpaired += len(begun)


def look(blocks: Iterator[bytes], path: str) -> None:
    """Reads up to the first track event. Raises InputError where there is none."""
    try:
        if any(holds_events(packet) for packet in packets_of(blocks)):
            return
    except DamagedError as failure:
        raise InputError(_nothing(path, str(failure))) from failure
    raise InputError(_nothing(path, ""))


def _nothing(path: str, damage: str) -> str:
    if damage:
        return f"{path}: protobuf without readable events ({damage}); copy it again"
    what = "protobuf without track events (an XPlane of TensorBoard, or a Perfetto trace of other data sources)"
    return f"{path}: {what}; pass the trace in Chrome JSON format (prof.export_chrome_trace)"


def kind_of(categories: str, name: str, lane: Lane) -> str:
    """What Kineto would write as `cat` of a slice: by its categories, else by its track and its name."""
    for one in categories.split(","):
        if one in _CATEGORIES:
            return _CATEGORIES[one]
        if category(one) != Category.OTHER:
            return one
    if lane.stream >= 0:
        if _COPY.search(name):
            return "gpu_memcpy"
        return "gpu_memset" if "memset" in name.lower() else "kernel"
    if _OP.match(name):
        return "cpu_op"
    return "cuda_runtime" if _CALL.match(name) else "user_annotation"


def _kineto_copy(found: re.Match[str]) -> str:
    source, target = found[1], found[2]
    return f"Memcpy {source[0]}to{target[0]} ({source.title()} -> {target.title()})"


def _us(ns: int) -> Decimal:
    """µs as Kineto states them, exact to the ns."""
    return Decimal(ns) / 1000
