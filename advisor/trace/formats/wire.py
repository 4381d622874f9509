"""Protobuf's wire format: fields of a message, by number. No schema; whoever reads knows what a number means.

The format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
# A packet of a trace is some KB; what states to be larger is damage.
LARGEST_MESSAGE = 256 << 20


class DamagedError(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned integer, and the position after it. Raises DamagedError, IndexError where the bytes end in it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    for position in range(at + 1, at + _LONGEST_VARINT):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
        shift += 7
    raise DamagedError("an integer of more than ten bytes")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field, in file order: integers as unsigned, fixed ones too, everything else as bytes.

    Raises DamagedError where the bytes are no whole message.
    """
    at, end = 0, len(data)
    try:
        while at < end:
            tag, at = varint(data, at)
            kind = tag & 7
            if kind == VARINT:
                value, at = varint(data, at)
                yield tag >> 3, value
                continue
            if kind == BYTES:
                size, at = varint(data, at)
            elif kind in (FIXED64, FIXED32):
                size = 8 if kind == FIXED64 else 4
            else:
                raise DamagedError(f"a field of the unknown kind {kind}")
            if at + size > end:
                raise DamagedError("a field that ends after its message")
            part = data[at : at + size]
            yield tag >> 3, part if kind == BYTES else int.from_bytes(part, "little")
            at += size
    except IndexError as failure:
        raise DamagedError("an integer without an end") from failure


def message(data: bytes) -> dict[int, int | bytes]:
    """The fields of a message whose fields stand once each; the last one counts. Raises DamagedError."""
    return dict(fields(data))


def parts(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that comes in blocks and holds only messages. Raises DamagedError.

    No more than one field and one block are in memory.
    """
    rest = b""
    for block in blocks:
        rest += block
        at = 0
        while (found := _part(rest, at)) is not None:
            number, start, at = found
            yield number, rest[start:at]
        rest = rest[at:]
    if rest:
        raise DamagedError("the file ends within a packet")


def _part(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Number, start and end of the field at a position; None where more bytes are needed."""
    try:
        tag, start = varint(data, at)
        size, start = varint(data, start)
    except IndexError:
        return None
    if tag & 7 != BYTES or size > LARGEST_MESSAGE:
        raise DamagedError("no packet where one should begin")
    return (tag >> 3, start, start + size) if start + size <= len(data) else None


def text(value: int | bytes | None) -> str:
    """A string; bytes that are not UTF-8 are replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def signed(value: int) -> int:
    """An int64 from the unsigned integer that stands in the file."""
    return value - (1 << 64) if value >> 63 else value


def double(value: int) -> float:
    """A double from its eight bytes, which `fields` gave as an integer."""
    number: float = struct.unpack("<d", value.to_bytes(8, "little"))[0]
    return number


def number(value: int | bytes | None, otherwise: int = 0) -> int:
    """An integer field; `otherwise` where it is absent."""
    return value if isinstance(value, int) else otherwise
