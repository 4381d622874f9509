"""Cuts a stream of JSON text into a head, slices of whole events, and whatever follows.

Slices are cut between `}` `,` `{` where an event's usual first key follows; a cut in the wrong place (such text inside
a string or a nested list) makes both halves undecodable, which the careful path notices and mends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from advisor.errors import InputError

# The longest event ever seen is below 1 MB (a stack, a name of 2,004 characters, shapes of a list of tensors).
LONGEST_EVENT = 64 << 20
LONGEST_HEAD = 256 << 20

_SPACE = b" \t\r\n"
_LEADING = re.compile(rb"[ \t\r\n\x00]*")
# So much of the start tells what a file of lines is; a key and its bracket lie no further apart.
_LINE = 4096
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_FIRST_KEY = re.compile(rb'\s*"(?:ph|name|cat|id|pid|tid|ts|dur|args|s|bp)"\s*:')


class Opening(Struct):
    """Where the events start. shape: `object` ({"traceEvents": [), `list` ([…) or `lines` (one event per line)."""

    shape: str
    head: bytes
    rest: bytes


def opening(blocks: Iterator[bytes], path: str) -> Opening:
    """Reads up to the first event. `shape` is `none` when the text ends without any events."""
    text, searched = bytearray(), 0
    for block in blocks:
        text += block
        start = _LEADING.match(text).end()  # type: ignore[union-attr]  # it also matches nothing
        if start == len(text):
            text.clear()
            continue
        if text[start : start + 1] == b"[":
            return Opening("list", b"", bytes(text[start + 1 :]))
        if _is_event_line(bytes(text[start : start + _LINE])):
            return Opening("lines", b"", bytes(text[start:]))
        found = _EVENTS.search(text, searched)
        if found is not None:
            return Opening("object", bytes(text[: found.start()]), bytes(text[found.end() :]))
        if len(text) > LONGEST_HEAD:
            raise InputError(f"{path}: no `traceEvents` in its first {len(text) >> 20} MB; pass a Kineto trace in JSON")
        # Once for every byte: a head of many blocks would else be searched anew with each.
        searched = max(len(text) - _LINE, 0)
    return Opening("none", bytes(text), b"")


def _is_event_line(text: bytes) -> bool:
    """Whether the first line is an event by itself (JSON lines)."""
    line = text.split(b"\n", 1)[0]
    return (
        line[:1] == b"{" and b'"ph"' in line and b'"traceEvents"' not in line and line.rstrip().endswith((b"}", b"},"))
    )


def slices(rest: bytes, blocks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Slices of whole events as JSON lists, brackets included; the last one also holds what follows the events."""
    held = [rest]
    for block in blocks:
        cut = last_boundary(block)
        if cut is None and sum(map(len, held)) > LONGEST_EVENT:
            raise InputError(f"{path}: no end of an event within {LONGEST_EVENT >> 20} MB; this is not a Kineto trace")
        if cut is None:
            # The boundary may lie across two blocks; joining them finds it.
            held = [b"".join((*held, block))]
            continue
        end, start = cut
        yield b"".join((b"[", *held, memoryview(block)[:end], b"]"))
        held = [block[start:]]
    if any(held):
        yield b"".join((b"[", *held, b"]"))


def halves(piece: bytes) -> tuple[bytes, bytes] | None:
    """A slice cut in two near its middle; None where it holds no boundary there."""
    cut = last_boundary(piece, len(piece) // 2)
    return (piece[: cut[0]] + b"]", b"[" + piece[cut[1] :]) if cut is not None else None


def last_boundary(text: bytes, end: int | None = None) -> tuple[int, int] | None:
    """The last place where one event ends and another starts: (after the `}`, at the `{`); None where there is none."""
    at = len(text) if end is None else end
    floor = max(at - (1 << 20), 0)
    while (at := text.rfind(b"{", floor, at)) >= 0:
        if _FIRST_KEY.match(text, at + 1) is None:
            continue
        low = max(at - 64, 0)
        before = text[low:at].rstrip(_SPACE)
        if not before.endswith(b","):
            continue
        before = before[:-1].rstrip(_SPACE)
        if before.endswith(b"}"):
            return low + len(before), at
    return None
