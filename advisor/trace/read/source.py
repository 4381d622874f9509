"""The bytes of a trace file as blocks of JSON text, whatever it is packed in; a few blocks in memory at a time."""

from __future__ import annotations

import codecs
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from advisor.errors import InputError
from advisor.places.archive import is_trace_member
from advisor.places.place import Place
from advisor.trace.read import zstd
from advisor.trace.read.file_kind import Kind, kind_of

Progress = Callable[[int, int], None]
BLOCK_BYTES = 1 << 20
# The first two bytes of gzip, zip and zstd.
PACKED = (b"\x1f\x8b", b"PK", b"\x28\xb5")
# Kineto's JSON shrinks 9 to 29 times; 1,000 times is the most that deflate can do, and only a bomb gets near it.
BOMB_RATIO = 200
BOMB_BYTES = 512 << 20
# No profiler window that anyone can use is larger; reading it would take the machine's memory with it.
LARGEST_BYTES = 64 << 30


class Source:
    """An open trace file. `cut_short` says, after reading, why the text ended early; empty where it did not."""

    def __init__(self, file: IO[bytes], path: Place, size: int, progress: Progress | None) -> None:
        self.name = str(path)
        self.cut_short = ""
        self.size = size
        self.packed = file.peek(2)[:2] in PACKED if isinstance(file, io.BufferedReader) else False
        self._file, self._progress = file, progress

    def kind(self) -> Kind:
        """What the file is by its first bytes, however it is packed."""
        return self._kind()[0]

    def _kind(self) -> tuple[Kind, str]:
        start = self._file.read(512)
        self._file.seek(0)
        return kind_of(start)

    def blocks(self) -> Iterator[bytes]:
        """The text, decompressed, in UTF-8; of a Perfetto trace the bytes. Raises InputError for what is no trace."""
        kind, what = self._kind()
        if kind == "empty":
            raise InputError(f"{self.name}: an empty file (the run that wrote it was stopped early?); record again")
        if kind == "foreign":
            raise InputError(f"{self.name}: {what}")
        if kind == "zip":
            return self._text(self._zip())
        return self._text(self._unpacked(kind, self._raw()))

    def share(self) -> float:
        """How much of the file as it lies on disk was read so far, 0 to 1."""
        return self._file.tell() / max(self.size, 1)

    def _raw(self) -> Iterator[bytes]:
        done = 0
        while block := self._file.read(BLOCK_BYTES):
            done += len(block)
            yield block
            if self._progress is not None:
                self._progress(done, self.size)

    def _unpacked(self, kind: Kind, packed: Iterator[bytes]) -> Iterator[bytes]:
        if kind == "zstd":
            return self._zstd(packed)
        return self._gzip(packed) if kind == "gzip" else packed

    def _zstd(self, packed: Iterator[bytes]) -> Iterator[bytes]:
        """All frames one after the other; what could be unpacked before damage is kept."""
        taken = given = 0
        unpacker, fresh = zstd.unpacker(self.name), True
        for block in packed:
            for at in range(0, len(block), zstd.SLICE_BYTES):
                rest = block[at : at + zstd.SLICE_BYTES]
                taken += len(rest)
                while rest:
                    if unpacker.eof:
                        unpacker, fresh = zstd.unpacker(self.name), True
                    try:
                        text = unpacker.decompress(rest)
                    except zstd.damages() as failure:
                        self.cut_short = f"the compressed data is damaged ({failure})"
                        return
                    rest = unpacker.unused_data if unpacker.eof else b""
                    fresh = False
                    given += len(text)
                    self._refuse_bombs(taken, given)
                    if text:
                        yield text
        if not unpacker.eof and not fresh:
            self.cut_short = "the compressed file is cut off"

    def _gzip(self, packed: Iterator[bytes]) -> Iterator[bytes]:
        """All members one after the other; what could be unpacked before damage is kept."""
        taken = given = 0
        unpacker, fresh = zlib.decompressobj(wbits=31), True
        for block in packed:
            taken += len(block)
            rest = block
            while rest:
                if unpacker.eof:
                    # Another member, or the zeros that some file systems leave at the end.
                    rest = rest.lstrip(b"\x00")
                    unpacker, fresh = zlib.decompressobj(wbits=31), True
                try:
                    text = unpacker.decompress(rest, BLOCK_BYTES)
                except zlib.error as failure:
                    if not fresh or given == 0:
                        self.cut_short = f"the compressed data is damaged ({failure})"
                    return
                rest = unpacker.unconsumed_tail or unpacker.unused_data
                fresh = fresh and not text
                given += len(text)
                self._refuse_bombs(taken, given)
                if text:
                    yield text
        if not unpacker.eof and not fresh:
            self.cut_short = "the compressed file is cut off"

    def _zip(self) -> Iterator[bytes]:
        """The one trace in a zip file, unpacked in memory; names in it never become paths."""
        try:
            with zipfile.ZipFile(self._file) as archive:
                members = [info for info in archive.infolist() if is_trace_member(info)]
                if len(members) != 1:
                    raise InputError(f"{self.name}: holds {len(members)} traces; unpack it and pass the folder")
                with archive.open(members[0]) as member:
                    yield from self._member(member)
        except InputError:
            raise
        except Exception as failure:  # damage makes zipfile fail in many ways, IndexError among them
            raise InputError(
                f"{self.name}: a zip file that cannot be read ({failure}); unpack it yourself"
            ) from failure

    def _member(self, member: IO[bytes]) -> Iterator[bytes]:
        def checked() -> Iterator[bytes]:
            given = 0
            while block := member.read(BLOCK_BYTES):
                given += len(block)
                self._refuse_bombs(self.size, given)
                yield block

        blocks = checked()
        first = next(blocks, b"")
        kind, what = kind_of(first[:512])
        if kind in ("zip", "foreign", "empty"):
            raise InputError(f"{self.name}: holds {what or 'nothing that is a trace'}")
        whole = _chain(first, blocks)
        yield from self._unpacked(kind, whole)

    def _refuse_bombs(self, taken: int, given: int) -> None:
        if given > LARGEST_BYTES or (given > BOMB_BYTES and given > BOMB_RATIO * max(taken, 1)):
            raise InputError(
                f"{self.name}: {taken >> 10} KB unpack to more than {given >> 20} MB, more than any trace; not read "
                "further"
            )

    def _text(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """UTF-16 and UTF-32 as UTF-8, and no byte order mark."""
        first = next(blocks, b"")
        kind, what = kind_of(first[:512])
        if kind == "foreign":
            raise InputError(f"{self.name}: {what}")
        if kind == "sqlite":
            raise InputError(f"{self.name}: an SQLite database that is compressed; decompress it first")
        if kind == "perfetto":
            yield from _chain(first, blocks)
            return
        if kind in ("utf-16", "utf-32"):
            yield from _recoded(_chain(first, blocks), _codec(first))
            return
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from blocks


def _codec(start: bytes) -> str:
    if start[:4] in (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"):
        return "utf-32"
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    return "utf-16-le" if start[1:2] == b"\x00" else "utf-16-be"


def _recoded(blocks: Iterator[bytes], codec: str) -> Iterator[bytes]:
    decode = codecs.getincrementaldecoder(codec)(errors="replace")
    for block in blocks:
        yield decode.decode(block).encode("utf-8", "replace")
    yield decode.decode(b"", True).encode("utf-8", "replace")


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


@contextmanager
def open_source(path: Place, progress: Progress | None = None) -> Iterator[Source]:
    """The file, open. Raises InputError (one line) where that fails."""
    try:
        with path.open("rb") as file:
            yield Source(file, path, path.stat().st_size, progress)
    except OSError as failure:
        raise InputError(
            f"{path}: cannot be read ({failure.strerror or failure}); check the path and its permissions"
        ) from failure
