"""Cuts a stream of JSON text into a head, slices of whole events, and whatever follows.

Slices are cut between `}` `,` `{` where an event's usual first key follows; a cut in the wrong place (such text inside
a string or a nested list) makes both halves undecodable, which the careful path notices and mends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.errors import InputError

# 1 MB of text is about 3,000 rows: large enough that the cost per slice vanishes, small enough for the CPU's caches.
SLICE_BYTES = 1 << 20
# The longest event ever seen is below 1 MB (a stack, a name of 2,004 characters, shapes of a list of tensors).
LONGEST_EVENT = 64 << 20
LONGEST_HEAD = 256 << 20

_SPACE = b" \t\r\n"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_FIRST_KEY = re.compile(rb'\s*"(?:ph|name|cat|id|pid|tid|ts|dur|args|s|bp)"\s*:')
BOUNDARY = re.compile(r'\}\s*,?\s*(?=\{\s*"(?:ph|name|cat|id|pid|tid|ts|dur|args|s|bp)"\s*:)')


@dataclass(slots=True)
class Opening:
    """Where the events start. shape: `object` ({"traceEvents": [), `list` ([…) or `lines` (one event per line)."""

    shape: str
    head: bytes
    rest: bytes


def opening(blocks: Iterator[bytes], path: str) -> Opening:
    """Reads up to the first event. `shape` is `none` when the text ends without any events."""
    text = b""
    for block in blocks:
        text += block
        start = text.lstrip(_SPACE + b"\x00")
        if not start:
            text = b""
            continue
        if start[:1] == b"[":
            return Opening("list", b"", start[1:])
        if _is_event_line(start):
            return Opening("lines", b"", start)
        found = _EVENTS.search(text)
        if found is not None:
            return Opening("object", text[: found.start()], text[found.end() :])
        if len(text) > LONGEST_HEAD:
            raise InputError(f"{path}: no `traceEvents` in its first {len(text) >> 20} MB; give a Kineto trace in JSON")
    return Opening("none", text, b"")


def _is_event_line(text: bytes) -> bool:
    """Whether the first line is an event by itself (JSON lines)."""
    line = text[:4096].split(b"\n", 1)[0]
    return (
        line[:1] == b"{" and b'"ph"' in line and b'"traceEvents"' not in line and line.rstrip().endswith((b"}", b"},"))
    )


def slices(rest: bytes, blocks: Iterator[bytes], path: str, size: int = SLICE_BYTES) -> Iterator[bytes]:
    """Slices of whole events, without the comma between slices; the last one also holds what follows the list."""
    for block in blocks:
        rest = rest + block if rest else block
        if len(rest) < size:
            continue
        cut = last_boundary(rest)
        if cut < 0:
            if len(rest) > LONGEST_EVENT:
                raise InputError(f"{path}: no end of an event within {len(rest) >> 20} MB; this is no Kineto trace")
            continue
        yield rest[:cut]
        rest = rest[cut:]
    if rest:
        yield rest


def last_boundary(text: bytes, end: int | None = None) -> int:
    """Position after the last `}` that a comma and a new event follow; -1 where there is none."""
    at = len(text) if end is None else end
    floor = max(at - (1 << 20), 0)
    while (at := text.rfind(b"{", floor, at)) >= 0:
        if _FIRST_KEY.match(text, at + 1) is None:
            continue
        before = text[max(at - 64, 0) : at].rstrip(_SPACE)
        if before.endswith(b","):
            before = before[:-1].rstrip(_SPACE)
        elif b"\n" not in text[max(at - 64, 0) : at]:
            continue
        if before.endswith(b"}"):
            return max(at - 64, 0) + len(before)
    return -1
