"""A rank in a small file: what is left of it when its trace is dropped, so that only this has to travel.

    encode(result, origin) -> bytes;  decode(data, path) -> Reduced;  glance(path) -> Origin

One line of text that says what the file is, then two pieces of zlib-packed msgpack, each after its length: the rank as
it is compared, and what is shown of the rank that stands for the job. docs/ranks.md lists the fields. Nothing in such a
file is executed, and no text of it becomes a path. The bytes are stable: the same rank always gives the same file.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from advisor import __version__
from advisor.analyses.base.scale import Scale
from advisor.capture.record import RankRecord, RunRecord
from advisor.engine.rank_result import RankDetail, RankFigures, RankResult
from advisor.errors import InputError
from advisor.places.place import Place
from advisor.ranks.collectives import Talks
from advisor.ranks.rank_facts import LinePart, RankFacts
from advisor.ranks.rank_mesh import MeshPlace
from advisor.report.report_file import plain
from advisor.trace.events import Ints

VERSION = 1
SUFFIX = ".rank"
MARK = b"torch-advisor reduced rank, version "
# The largest that one piece may unpack to: some 500 times what a rank of 50 steps takes.
MOST_BYTES = 1 << 28
_LENGTH_BYTES = 8
_NAME_LENGTH = 100
_LEVEL = 6
# Of the record of `advisor run` what is about one process alone, and what is large.
_NOT_COMPARED = ("files", "model", "run", "dataflow", "reused", "sparse_products", "user_files", "calibration")


class Origin(msgspec.Struct, frozen=True):
    """Where a reduced form comes from.

    trace        name of the trace's file, without its folder;  start_ns, end_ns: its first and last time
    rules        the configuration of rules that was in force, as text
    run          what is known of the whole job besides its ranks
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


class _Talks(msgspec.Struct):
    """The collectives: columns as `_packed`, texts numbered. took: end - start; asked: start - asked."""

    start: bytes
    took: bytes
    asked: bytes
    step: bytes
    kinds: tuple[str, ...]
    kind: bytes
    groups: tuple[str, ...]
    group: bytes
    members: bytes
    sequence: bytes
    sent: bytes
    received: bytes
    size: bytes
    peer: bytes
    # Not in files that were made before it was known.
    purposes: tuple[str, ...] = ()
    purpose: bytes = b""


class _Facts(msgspec.Struct):
    """`RankFacts` with its columns packed; of `exposed` the starts and the lengths."""

    labels: tuple[str, ...]
    starts: bytes
    parts_us: dict[str, list[float]]
    exposed: bytes
    exposed_took: bytes
    talks: _Talks
    flops: list[float] | None
    lines: tuple[LinePart, ...]
    scale: Scale
    step_us: float
    on_device: bool
    world_size: int | None
    record: RankRecord | None
    mesh: tuple[MeshPlace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared(RankFigures):
    """The first piece of the file."""

    origin: Origin
    facts: _Facts | None


# For the schema of the file: what the first piece holds.
COMPARED = _Compared


class _Head(msgspec.Struct):
    """The part of the first piece that a glance needs."""

    origin: Origin


def encode(result: RankResult, origin: Origin) -> bytes:
    """The file of one rank."""
    # Titles and pages come from the rules again.
    outcomes = tuple(replace(one, title="", page="") for one in result.outcomes)
    facts = _facts_of(result.facts) if result.facts is not None else None
    compared = _Compared(**(_figures(result) | {"outcomes": outcomes}), origin=origin, facts=facts)
    detail = result.detail if isinstance(result.detail, bytes) else _piece(result.detail)
    return b"".join((MARK, str(VERSION).encode(), b"\n", *map(_with_length, (_piece(compared), detail))))


def decode(data: bytes, path: Place | str) -> Reduced:
    """The rank in a file's bytes; `path` is for messages. Raises InputError, one line, for what cannot be used."""
    first, second = _pieces(data, path)
    compared = _read(first, _Compared, path)
    try:
        facts = _rank_facts(compared.facts) if compared.facts is not None else None
    except ValueError as failure:
        raise _damaged(path, failure) from failure
    return Reduced(compared.origin, RankResult(**_figures(compared), facts=facts, detail=second))


def _figures(rank: RankFigures) -> dict[str, Any]:
    return {one.name: getattr(rank, one.name) for one in fields(RankFigures)}


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


def compared_record(record: RankRecord | None) -> RankRecord | None:
    """The record of a rank without what no comparison of ranks asks for."""
    if record is None:
        return None
    empty = RankRecord()
    return msgspec.structs.replace(record, **{name: getattr(empty, name) for name in _NOT_COMPARED})


def _piece(value: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value, enc_hook=plain), _LEVEL)


def _with_length(piece: bytes) -> bytes:
    return len(piece).to_bytes(_LENGTH_BYTES, "big") + piece


def _pieces(data: bytes, path: Place | str) -> tuple[bytes, bytes]:
    """The two packed pieces of a file of this version."""
    line, found, rest = data.partition(b"\n")
    if not line.startswith(MARK) or not found:
        raise InputError(f"{path}: not a reduced form of torch-advisor; make one with `advisor reduce`")
    if line != MARK + str(VERSION).encode():
        version = line[len(MARK) :][:20].decode("ascii", "replace")
        raise InputError(
            f"{path}: a reduced form of version {version}, this torch-advisor reads {VERSION}; reduce the trace again"
        )
    pieces = []
    for _ in range(2):
        length = int.from_bytes(rest[:_LENGTH_BYTES], "big")
        pieces.append(rest[_LENGTH_BYTES : _LENGTH_BYTES + length])
        if len(rest) < _LENGTH_BYTES or len(pieces[-1]) < length:
            raise _damaged(path, "it ends early")
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
            raise _damaged(path, "it unpacks to too much" if len(text) == MOST_BYTES else "it ends early")
        return msgspec.msgpack.decode(text, type=kind)
    except (zlib.error, msgspec.MsgspecError, ValueError, RecursionError) as failure:
        raise _damaged(path, failure) from failure


def _damaged(path: Place | str, why: object) -> InputError:
    return InputError(f"{path}: a damaged reduced form ({str(why).splitlines()[0][:200]}); reduce the trace again")


def _packed(column: npt.ArrayLike) -> bytes:
    """A column of integers as differences, their bytes of equal weight together, which zlib packs well."""
    steps = np.diff(np.asarray(column, np.int64), prepend=np.int64(0)).astype("<i8")
    return steps.view(np.uint8).reshape(-1, 8).T.tobytes()


def _unpacked(data: bytes, count: int | None = None) -> Ints:
    """The column again. Raises ValueError where it has not `count` entries."""
    rows = np.frombuffer(data, np.uint8).reshape(8, -1)
    if count is not None and rows.shape[1] != count:
        raise ValueError(f"a column has {rows.shape[1]} entries in place of {count}")
    return np.ascontiguousarray(rows.T).view("<i8").ravel().cumsum().astype(np.int64)


def _numbered(texts: tuple[str, ...]) -> tuple[tuple[str, ...], bytes]:
    """The distinct texts in order of their first place, and which of them stands where."""
    table = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    return tuple(table), _packed([table[text] for text in texts])


def _texts(table: tuple[str, ...], data: bytes, count: int) -> tuple[str, ...]:
    places = _unpacked(data, count).tolist()
    if places and not 0 <= min(places) <= max(places) < len(table):
        raise ValueError("a text has a number that none has")
    return tuple(table[place] for place in places)


def _facts_of(facts: RankFacts) -> _Facts:
    talks = facts.talks
    kinds, kind = _numbered(talks.kind)
    groups, group = _numbered(talks.group)
    purposes, purpose = _numbered(talks.purpose)
    return _Facts(
        labels=facts.labels,
        starts=_packed(facts.starts_ns),
        parts_us={part: us.tolist() for part, us in facts.parts_us.items()},
        exposed=_packed(facts.exposed[:, 0]),
        exposed_took=_packed(facts.exposed[:, 1] - facts.exposed[:, 0]),
        talks=_Talks(
            start=_packed(talks.start_ns),
            took=_packed(talks.end_ns - talks.start_ns),
            asked=_packed(talks.start_ns - talks.asked_ns),
            step=_packed(talks.step),
            kinds=kinds,
            kind=kind,
            groups=groups,
            group=group,
            members=_packed(talks.members),
            sequence=_packed(talks.sequence),
            sent=_packed(talks.sent),
            received=_packed(talks.received),
            size=_packed(talks.bytes),
            peer=_packed(talks.peer),
            purposes=purposes,
            purpose=purpose,
        ),
        flops=facts.flops.tolist() if facts.flops is not None else None,
        lines=facts.lines,
        scale=facts.scale,
        step_us=facts.step_us,
        on_device=facts.on_device,
        world_size=facts.world_size,
        record=compared_record(facts.record),
        mesh=facts.mesh,
    )


def _rank_facts(facts: _Facts) -> RankFacts:
    steps = len(facts.labels)
    starts = _unpacked(facts.exposed)
    parts = {part: np.array(us, float) for part, us in facts.parts_us.items()}
    flops = np.array(facts.flops, float) if facts.flops is not None else None
    if any(len(us) != steps for us in (*parts.values(), *([] if flops is None else [flops]))):
        raise ValueError("a part has another number of steps")
    return RankFacts(
        labels=facts.labels,
        starts_ns=_unpacked(facts.starts, steps),
        parts_us=parts,
        exposed=np.column_stack((starts, starts + _unpacked(facts.exposed_took, len(starts)))),
        talks=_talks(facts.talks),
        flops=flops,
        lines=facts.lines,
        scale=facts.scale,
        step_us=facts.step_us,
        on_device=facts.on_device,
        world_size=facts.world_size,
        record=facts.record,
        mesh=facts.mesh,
    )


def _talks(talks: _Talks) -> Talks:
    start = _unpacked(talks.start)
    count = len(start)
    return Talks(
        start_ns=start,
        end_ns=start + _unpacked(talks.took, count),
        step=_unpacked(talks.step, count),
        kind=_texts(talks.kinds, talks.kind, count),
        group=_texts(talks.groups, talks.group, count),
        members=_unpacked(talks.members, count),
        sequence=_unpacked(talks.sequence, count),
        sent=_unpacked(talks.sent, count),
        received=_unpacked(talks.received, count),
        bytes=_unpacked(talks.size, count),
        peer=_unpacked(talks.peer, count),
        asked_ns=start - _unpacked(talks.asked, count),
        purpose=_texts(talks.purposes, talks.purpose, count) if talks.purposes else ("",) * count,
    )
