"""What a file is, by its first bytes: the name is never asked."""

from __future__ import annotations

from typing import Literal

Kind = Literal["json", "gzip", "zip", "zstd", "utf-16", "utf-32", "empty", "foreign"]

_GIVE = "give the trace in Chrome JSON (prof.export_chrome_trace)"
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer in place of the file; run `git lfs pull`, then try again"),
    (b"SQLite format 3\x00", f"an SQLite database (nsys export?), no Kineto trace; {_GIVE}"),
    (b"NVTX", f"an NVIDIA profiler file, no Kineto trace; {_GIVE}"),
    (b"\x89HDF", f"an HDF5 file, no Kineto trace; {_GIVE}"),
    (b"\xfd7zXZ\x00", "compressed with xz; decompress it first (`xz -d`)"),
    (b"BZh", "compressed with bzip2; decompress it first (`bzip2 -d`)"),
    (b"\x7fELF", f"a program, no Kineto trace; {_GIVE}"),
    (b"%PDF", f"a PDF, no Kineto trace; {_GIVE}"),
    (b"<", f"HTML or XML, no Kineto trace (a download page saved in its place?); {_GIVE}"),
    (b"\x80\x02", f"a pickle (memory snapshot?), which is never opened here; {_GIVE}"),
    (b"\x80\x04", f"a pickle (memory snapshot?), which is never opened here; {_GIVE}"),
    (b"\x80\x05", f"a pickle (memory snapshot?), which is never opened here; {_GIVE}"),
)
PROTOBUF = f"protobuf (a Perfetto or XPlane trace), not JSON; {_GIVE}"
NOT_JSON = f"not JSON, so no Kineto trace; {_GIVE}"


_PACKED: tuple[tuple[bytes, Kind], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    *((mark, "utf-16") for mark in (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"[\x00", b"\x00{", b"\x00[")),
)


def kind_of(start: bytes) -> tuple[Kind, str]:
    """The kind of a file whose first bytes are `start`; for a foreign one what it is and what to do."""
    if not start:
        return "empty", ""
    for magic, kind in _PACKED:
        if start.startswith(magic):
            return kind, ""
    for magic, what in _FOREIGN:
        if start.startswith(magic):
            return "foreign", what
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n\x00")
    if not text or text[:1] in (b"{", b"["):
        return "json", ""
    # A protobuf message starts with a field of wire type 2 (0x0a: field 1, with a length) and has bytes below space.
    protobuf = start[:1] in (b"\x0a", b"\x08", b"\x12") and any(byte < 9 for byte in start[:64])
    return "foreign", PROTOBUF if protobuf else NOT_JSON
