"""Packets of a Perfetto trace to beginnings and ends on tracks; interned names, default tracks and clocks resolved.

Numbers of fields: protos/perfetto/trace/ of github.com/google/perfetto (trace_packet.proto, interned_data.proto,
track_event/track_event.proto, track_event/debug_annotation.proto).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from advisor.trace.formats.perfetto_clocks import BOOTTIME, Clocks
from advisor.trace.formats.perfetto_tracks import Track, track_of
from advisor.trace.formats.wire import DamagedError, double, fields, message, number, parts, signed, text
from advisor.trace.numbers import LATEST_NS

PACKET = 1
# TracePacket
_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_CLEARED, _COMPRESSED, _CLOCK, _DEFAULTS, _DESCRIPTOR = 41, 50, 58, 59, 60
_STATE_CLEARED = 1  # of sequence_flags
_OF_EVENTS = frozenset((_SNAPSHOT, _EVENT, _INTERNED, _COMPRESSED, _DEFAULTS, _DESCRIPTOR))
# Housekeeping of the recorder, which is no data that a reader could miss: synchronization_marker, trace_config,
# trace_stats, process_descriptor, trace_uuid, service_event, extension_descriptor.
_HOUSEKEEPING = frozenset((33, 35, 36, 43, 44, 69, 72, 89))
# TrackEvent
_CATEGORY_IDS, _ANNOTATIONS, _LEGACY, _TYPE, _NAME_ID, _TRACK, _CATEGORIES, _NAME, _CORRELATION = (
    *(3, 4, 6, 9, 10, 11, 22, 23),
    52,
)
_BEGIN, _END = 1, 2
# LegacyEvent: what Chrome's JSON had as `ph` and `dur`.
_PHASE, _DURATION_US = 2, 3
# InternedData
_EVENT_CATEGORIES, _EVENT_NAMES, _ANNOTATION_NAMES, _STRINGS = 1, 2, 3, 29
# DebugAnnotation
_KEY_ID, _BOOL, _UINT, _INT, _DOUBLE, _STRING, _POINTER, _JSON, _KEY, _ENTRIES, _ITEMS, _STRING_ID = (
    *(1, 2, 3, 4, 5, 6, 7, 9),
    *(10, 11, 12, 17),
)
# A compressed packet holds some hundred KB; more than this is a bomb.
_LARGEST_BUNDLE = 64 << 20
_DEEPEST = 8


class Mark(NamedTuple):
    """A beginning or an end on a track. dur_ns: of a slice that states both in one, else -1."""

    time_ns: int
    begins: bool
    name: str = ""
    category: str = ""
    args: dict[str, Any] | None = None
    dur_ns: int = -1


@dataclass(slots=True)
class _Sequence:
    """What packets of one writer refer back to: texts by number and kind, the default track and the default clock."""

    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    track: int = 0
    clock: int = BOOTTIME


@dataclass(slots=True)
class Packets:
    """All that was read so far. `add` takes packets in file order.

    marks    by the uuid of their track
    others   packets of kinds that are not read
    nameless events whose name was interned in a packet that is not there
    """

    tracks: dict[int, Track] = field(default_factory=dict)
    marks: dict[int, list[Mark]] = field(default_factory=dict)
    others: int = 0
    nameless: int = 0
    timeless: int = 0
    _clocks: Clocks = field(default_factory=Clocks)
    _sequences: dict[int, _Sequence] = field(default_factory=dict)

    def add(self, data: bytes, depth: int = 0) -> None:
        """Takes in a TracePacket. Raises DamagedError."""
        packet = message(data)
        if not packet.keys() & _OF_EVENTS:
            self.others += not packet.keys() & _HOUSEKEEPING
            return
        of = number(packet.get(_SEQUENCE))
        sequence = self._sequences.setdefault(of, _Sequence())
        if number(packet.get(_FLAGS)) & _STATE_CLEARED or number(packet.get(_CLEARED)):
            sequence = self._sequences[of] = _Sequence()
        for key, value in packet.items():
            if key == _DEFAULTS and isinstance(value, bytes):
                _defaults(value, sequence)
            elif key == _INTERNED and isinstance(value, bytes):
                _intern(value, sequence)
            elif key == _SNAPSHOT and isinstance(value, bytes):
                self._clocks.snapshot(value, of)
            elif key == _DESCRIPTOR and isinstance(value, bytes):
                track = track_of(value)
                self.tracks[track.uuid] = track
            elif key == _COMPRESSED and isinstance(value, bytes) and depth == 0:
                for _, inner in parts(iter([_unpacked(value)])):
                    self.add(inner, depth=1)
        stamp = packet.get(_TIMESTAMP)
        time_ns = None
        if isinstance(stamp, int):
            time_ns = self._clocks.time_ns(stamp, number(packet.get(_CLOCK)) or sequence.clock, of)
        event = packet.get(_EVENT)
        if isinstance(event, bytes):
            self._event(event, time_ns, sequence)

    def _event(self, data: bytes, time_ns: int | None, sequence: _Sequence) -> None:
        found, categories, annotations = _opened(data, sequence)
        kind, dur_ns = _kind(found)
        if kind not in (_BEGIN, _END):
            return  # an instant or a counter
        if time_ns is None or not 0 <= time_ns < LATEST_NS:
            self.timeless += 1
            return
        name = text(found.get(_NAME))
        if not name and _NAME_ID in found:
            name = sequence.texts.get((_EVENT_NAMES, number(found[_NAME_ID])), "")
            self.nameless += not name
        args = dict(_annotation(one, sequence) for one in annotations)
        if _CORRELATION in found:
            args.setdefault("correlation", found[_CORRELATION])
        mark = Mark(time_ns, kind == _BEGIN, name, ",".join(categories), args or None, dur_ns)
        self.marks.setdefault(number(found.get(_TRACK), sequence.track), []).append(mark)


def _opened(data: bytes, sequence: _Sequence) -> tuple[dict[int, int | bytes], list[str], list[bytes]]:
    """The fields of a TrackEvent that stand once, its categories, and its annotations."""
    found: dict[int, int | bytes] = {}
    categories: list[str] = []
    annotations: list[bytes] = []
    for key, value in fields(data):
        if key == _ANNOTATIONS and isinstance(value, bytes):
            annotations.append(value)
        elif key == _CATEGORIES:
            categories.append(text(value))
        elif key == _CATEGORY_IDS and isinstance(value, int):
            categories.append(sequence.texts.get((_EVENT_CATEGORIES, value), ""))
        else:
            found[key] = value
    return found, categories, annotations


def _kind(found: dict[int, int | bytes]) -> tuple[int, int]:
    """Whether an event begins or ends a slice; and its duration in ns where it does both, else -1."""
    legacy = found.get(_LEGACY)
    if _TYPE in found or not isinstance(legacy, bytes):
        return number(found.get(_TYPE)), -1
    of = message(legacy)
    phase = number(of.get(_PHASE))
    if phase == ord("X"):
        return _BEGIN, max(signed(number(of.get(_DURATION_US))), 0) * 1000
    return {ord("B"): _BEGIN, ord("E"): _END}.get(phase, 0), -1


def _defaults(data: bytes, sequence: _Sequence) -> None:
    found = message(data)
    sequence.clock = number(found.get(_CLOCK)) or sequence.clock
    of_events = found.get(_EVENT)
    if isinstance(of_events, bytes):
        sequence.track = number(message(of_events).get(_TRACK), sequence.track)


def _intern(data: bytes, sequence: _Sequence) -> None:
    for kind, value in fields(data):
        if kind in (_EVENT_CATEGORIES, _EVENT_NAMES, _ANNOTATION_NAMES, _STRINGS) and isinstance(value, bytes):
            one = message(value)  # iid = 1, name or str = 2, in all four
            sequence.texts[kind, number(one.get(1))] = text(one.get(2))


def _annotation(data: bytes, sequence: _Sequence, depth: int = 0) -> tuple[str, Any]:
    """Key and value of a DebugAnnotation, as `args` of Kineto's JSON hold them."""
    key = ""
    value: Any = None
    entries: dict[str, Any] = {}
    items: list[Any] = []
    for kind, raw in fields(data):
        if kind == _KEY:
            key = text(raw)
        elif kind == _KEY_ID and isinstance(raw, int):
            key = sequence.texts.get((_ANNOTATION_NAMES, raw), "")
        elif kind in (_ENTRIES, _ITEMS) and isinstance(raw, bytes) and depth < _DEEPEST:
            inner, of_inner = _annotation(raw, sequence, depth + 1)
            if kind == _ENTRIES:
                value = entries
                entries[inner] = of_inner
            else:
                value = items
                items.append(of_inner)
        else:
            value = _plain(kind, raw, sequence, value)
    return key, value


def _plain(kind: int, raw: int | bytes, sequence: _Sequence, otherwise: Any) -> Any:
    """The value of a field of an annotation; `otherwise` for a field that holds none."""
    if isinstance(raw, bytes):
        return _worded(kind, text(raw), otherwise)
    if kind == _STRING_ID:
        return sequence.texts.get((_STRINGS, raw), "")
    reads: dict[int, Callable[[int], Any]] = {_BOOL: bool, _UINT: int, _POINTER: int, _INT: signed, _DOUBLE: double}
    return reads[kind](raw) if kind in reads else otherwise


def _worded(kind: int, words: str, otherwise: Any) -> Any:
    if kind == _JSON:
        try:
            return json.loads(words)
        except (ValueError, RecursionError):
            return words
    return words if kind == _STRING else otherwise


def _unpacked(data: bytes) -> bytes:
    """A bundle of packets that was deflated. Raises DamagedError."""
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, _LARGEST_BUNDLE)
    except zlib.error as failure:
        raise DamagedError("a compressed packet cannot be unpacked") from failure
    if not unpacker.eof:
        raise DamagedError("a compressed packet that is truncated, or larger than any that Perfetto writes")
    return unpacked


def packets_of(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The packets of a trace, in file order. Raises DamagedError where they end in the middle of one."""
    for key, data in parts(blocks):
        if key == PACKET:
            yield data


def holds_events(data: bytes) -> bool:
    """Whether a packet holds a track event, or packets that may. Raises DamagedError."""
    return any(key in (_EVENT, _COMPRESSED) for key, _ in fields(data))
