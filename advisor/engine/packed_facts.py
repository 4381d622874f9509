"""What a rank is compared by, with its columns packed: a part of its reduced form."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from advisor.analyses.base.scale import Scale
from advisor.capture.record import RankRecord
from advisor.ranks.collectives import Talks
from advisor.ranks.rank_facts import LinePart, RankFacts
from advisor.ranks.rank_mesh import MeshPlace
from advisor.trace.events import Ints

# Of the record of `advisor run` what is about one process alone, and what is large.
_NOT_COMPARED = ("files", "model", "dataflow", "reused", "sparse_products", "user_files", "calibration")


class _Talks(msgspec.Struct):
    """The collectives: packed columns, with numbered strings. took: end - start; asked: start - call."""

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


class PackedFacts(msgspec.Struct):
    """`RankFacts` with packed columns; `exposed` as starts and lengths."""

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


def packed_facts(facts: RankFacts) -> PackedFacts:
    """The facts of a rank with their columns packed."""
    talks = facts.talks
    kinds, kind = _numbered(talks.kind)
    groups, group = _numbered(talks.group)
    purposes, purpose = _numbered(talks.purpose)
    return PackedFacts(
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


def unpacked_facts(facts: PackedFacts) -> RankFacts:
    """The same facts again. Raises ValueError where columns do not fit each other."""
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


def compared_record(record: RankRecord | None) -> RankRecord | None:
    """The record of a rank without what no comparison of ranks asks for."""
    if record is None:
        return None
    empty = RankRecord()
    return msgspec.structs.replace(record, **{name: getattr(empty, name) for name in _NOT_COMPARED})
