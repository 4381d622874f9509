"""What a file is, by its first bytes: the name is never asked."""

from __future__ import annotations

from typing import Literal

Kind = Literal["json", "gzip", "zip", "zstd", "utf-16", "utf-32", "perfetto", "sqlite", "empty", "foreign"]

_GIVE = "pass the trace in Chrome JSON format (prof.export_chrome_trace)"
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer instead of the file; run `git lfs pull`, then try again"),
    (b"NVTX", "an NVIDIA profiler file; export it (`nsys export --type sqlite`) and pass the .sqlite file"),
    (b"\x89HDF", f"an HDF5 file, not a Kineto trace; {_GIVE}"),
    (b"\xfd7zXZ\x00", "compressed with xz; decompress it first (`xz -d`)"),
    (b"BZh", "compressed with bzip2; decompress it first (`bzip2 -d`)"),
    (b"\x7fELF", f"an executable, not a Kineto trace; {_GIVE}"),
    (b"%PDF", f"a PDF, not a Kineto trace; {_GIVE}"),
    (b"<", f"HTML or XML, not a Kineto trace (a saved download page?); {_GIVE}"),
    (b"\x80\x02", "a pickle, not a trace; `advisor memory FILE` reads CUDA allocator snapshots"),
    (b"\x80\x04", "a pickle, not a trace; `advisor memory FILE` reads CUDA allocator snapshots"),
    (b"\x80\x05", "a pickle, not a trace; `advisor memory FILE` reads CUDA allocator snapshots"),
)
PROTOBUF = f"protobuf (an XPlane trace?), but not a Perfetto trace; {_GIVE}"
NOT_JSON = f"not JSON, so not a Kineto trace; {_GIVE}"


_KNOWN: tuple[tuple[bytes, Kind], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"SQLite format 3\x00", "sqlite"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    *((mark, "utf-16") for mark in (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"[\x00", b"\x00{", b"\x00[")),
)


def kind_of(start: bytes) -> tuple[Kind, str]:
    """The kind of a file whose first bytes are `start`; for a foreign one what it is and what to do."""
    if not start:
        return "empty", ""
    for magic, kind in _KNOWN:
        if start.startswith(magic):
            return kind, ""
    for magic, what in _FOREIGN:
        if start.startswith(magic):
            return "foreign", what
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n\x00")
    packet = _is_packet(start)
    if packet or not text or text[:1] in (b"{", b"["):
        return "perfetto" if packet else "json", ""
    # A protobuf message starts with a field of wire type 2 or 0 and has bytes below space.
    protobuf = start[:1] in (b"\x08", b"\x12") and any(byte < 9 for byte in start[:64])
    return "foreign", PROTOBUF if protobuf else NOT_JSON


# What may follow an opening bracket in JSON.
_AFTER_BRACKET = b' \t\r\n"{}[]-0123456789ntf'


def _is_packet(start: bytes) -> bool:
    """Whether a file starts as a Perfetto trace does: field 1 with a length (0x0a), and bytes that no text has.

    0x0a is a line feed, too: JSON may begin with an empty line, and a packet of 123 bytes continues with `{`.
    """
    text = start.lstrip(b" \t\r\n\x00")
    if start[:1] != b"\n" or not text or not any(byte < 9 for byte in start[1:64]):
        return False
    return text[:1] not in (b"{", b"[") or (start[1:2] == text[:1] and start[2] not in _AFTER_BRACKET)
