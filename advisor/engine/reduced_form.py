"""A rank in a small file: what is left of it when its trace is dropped, so that only this has to travel.

    encode(result, origin) -> bytes;  decode(data, path) -> Reduced;  glance(path) -> Origin

One line of text that says what the file is, then two pieces of zlib-packed msgpack, each after its length: the rank as
it is compared, and what is shown of the rank that stands for the job. docs/ranks.md lists the fields. Nothing in such a
file is executed, and no text of it becomes a path. The bytes are stable: the same rank always gives the same file.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from advisor import __version__
from advisor.capture.record import RunRecord
from advisor.engine.packed_facts import PackedFacts, packed_facts, unpacked_facts
from advisor.engine.rank_result import RankDetail, RankFigures, RankResult
from advisor.errors import InputError
from advisor.places.place import Place
from advisor.report.report_file import plain

VERSION = 1
SUFFIX = ".rank"
MARK = b"torch-advisor reduced rank, version "
# The largest that one piece may unpack to: some 500 times what a rank of 50 steps takes.
MOST_BYTES = 1 << 28
_LENGTH_BYTES = 8
_NAME_LENGTH = 100
_LEVEL = 6


class Origin(msgspec.Struct, frozen=True):
    """The origin of a reduced form.

    trace        name of the trace's file, without its folder;  start_ns, end_ns: its first and last time
    rules        the configuration of rules, as text
    run          what is known about the whole job, without its ranks
    """

    rank: int
    trace: str
    world_size: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    rules: str = ""
    run: RunRecord | None = None
    advisor: str = __version__


class Reduced(msgspec.Struct, frozen=True):
    """A reduced form that was read."""

    origin: Origin
    result: RankResult

    def with_result(self, result: RankResult) -> Reduced:
        """The same with another result."""
        return Reduced(self.origin, result)


class _Compared(RankFigures, frozen=True, kw_only=True):
    """The first piece of the file."""

    origin: Origin
    facts: PackedFacts | None


# For the schema of the file: what the first piece holds.
COMPARED = _Compared


class _Head(msgspec.Struct):
    """The part of the first piece that a glance needs."""

    origin: Origin


def encode(result: RankResult, origin: Origin) -> bytes:
    """The file of one rank."""
    # Titles and pages come from the rules again.
    outcomes = tuple(replace(one, title="", page="") for one in result.outcomes)
    facts = packed_facts(result.facts) if result.facts is not None else None
    compared = _Compared(**(_figures(result) | {"outcomes": outcomes}), origin=origin, facts=facts)
    detail = result.detail if isinstance(result.detail, bytes) else _piece(result.detail)
    return b"".join((MARK, str(VERSION).encode(), b"\n", *map(_with_length, (_piece(compared), detail))))


def decode(data: bytes, path: Place | str) -> Reduced:
    """The rank in a file's bytes; `path` is for messages. Raises InputError, one line, for what cannot be used."""
    first, second = _pieces(data, path)
    compared = _read(first, _Compared, path)
    try:
        facts = unpacked_facts(compared.facts) if compared.facts is not None else None
    except ValueError as failure:
        raise _damaged(path, failure) from failure
    return Reduced(compared.origin, RankResult(**_figures(compared), facts=facts, detail=second))


def _figures(rank: RankFigures) -> dict[str, Any]:
    return {name: getattr(rank, name) for name in RankFigures.__struct_fields__}


def packed(result: RankResult) -> RankResult:
    """The rank with what is shown of it packed: of many ranks one is shown."""
    return result if isinstance(result.detail, bytes) else replace(result, detail=_piece(result.detail))


def origin_of(data: bytes, path: Place | str) -> Origin:
    """Where it comes from; the rest is not made into values. Raises InputError as `decode`."""
    head: _Head = _read(_pieces(data, path)[0], _Head, path)
    return head.origin


def detail_of(result: RankResult) -> RankDetail:
    """What is shown of a rank. Raises InputError where its reduced form is damaged."""
    if isinstance(result.detail, RankDetail):
        return result.detail
    detail: RankDetail = _read(result.detail, RankDetail, result.summary.file)
    return detail


def prefix(rank: int) -> str:
    """What names of reduced forms of a rank begin with, in the order of ranks."""
    return f"rank{rank:05d}-"


def file_name(origin: Origin) -> str:
    """The name of its file: of two traces of one rank each has its own."""
    stem = re.sub(r"(\.pt)?(\.trace)?\.json(\.gz|\.zip)?$", "", origin.trace)
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in stem)
    return f"{prefix(origin.rank)}{kept[:_NAME_LENGTH].lstrip('.') or 'trace'}{SUFFIX}"


def is_reduced(path: Place) -> bool:
    """Whether a file says that it is a reduced form, of whatever version."""
    if not isinstance(path, Path):
        return path.name.endswith(SUFFIX)  # asking each file of a bucket costs a request
    try:
        with path.open("rb") as file:
            return file.read(len(MARK)) == MARK
    except OSError:
        return False


def _piece(value: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value, enc_hook=plain), _LEVEL)


def _with_length(piece: bytes) -> bytes:
    return len(piece).to_bytes(_LENGTH_BYTES, "big") + piece


def _pieces(data: bytes, path: Place | str) -> tuple[bytes, bytes]:
    """The two packed pieces of a file of this version."""
    line, found, rest = data.partition(b"\n")
    if not line.startswith(MARK) or not found:
        raise InputError(f"{path}: not a reduced trace of torch-advisor; create one with `advisor reduce`")
    if line != MARK + str(VERSION).encode():
        version = line[len(MARK) :][:20].decode("ascii", "replace")
        raise InputError(
            f"{path}: a reduced trace of version {version}, this torch-advisor reads {VERSION}; reduce it again"
        )
    pieces = []
    for _ in range(2):
        length = int.from_bytes(rest[:_LENGTH_BYTES], "big")
        pieces.append(rest[_LENGTH_BYTES : _LENGTH_BYTES + length])
        if len(rest) < _LENGTH_BYTES or len(pieces[-1]) < length:
            raise _damaged(path, "it is truncated")
        rest = rest[_LENGTH_BYTES + length :]
    return pieces[0], pieces[1]


def unpacked_pieces(data: bytes, path: Place | str) -> tuple[Any, Any]:
    """The two pieces of a file as plain data, as its schemas describe them. Raises InputError as `decode`."""
    first, second = _pieces(data, path)
    return _read(first, Any, path), _read(second, Any, path)


def _read(piece: bytes, kind: Any, path: Place | str) -> Any:
    """A piece as values of that type."""
    try:
        unpacked = zlib.decompressobj()
        text = unpacked.decompress(piece, MOST_BYTES)
        if not unpacked.eof:
            raise _damaged(path, "it unpacks to too much data" if len(text) == MOST_BYTES else "it is truncated")
        return msgspec.msgpack.decode(text, type=kind)
    except (zlib.error, msgspec.MsgspecError, ValueError, RecursionError) as failure:
        raise _damaged(path, failure) from failure


def _damaged(path: Place | str, why: object) -> InputError:
    return InputError(f"{path}: a damaged reduced trace ({str(why).splitlines()[0][:200]}); reduce the trace again")
