"""What a trace says besides its events: rank, devices, versions, settings of the recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from advisor.trace.numbers import integer


class Group(Struct, frozen=True):
    """A process group that this rank is in: its name, what it was made for ("mesh_tp"), and its ranks in order."""

    name: str
    purpose: str
    ranks: tuple[int, ...]


class DeviceProperties(Struct, frozen=True):
    """One entry of `deviceProperties`; None where the trace is silent."""

    name: str
    major: int | None = None
    minor: int | None = None
    multiprocessors: int | None = None
    total_memory: int | None = None


class Meta(Struct, frozen=True):
    """What the file says besides its events. Absent facts are None, never a guess.

    accelerators: what those accelerators are called whose rows are there, but cannot be told apart (MTIA, HPU …)
    format: of the file: Kineto's JSON, Perfetto's protobuf, or Nsight Systems' SQLite
    """

    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    devices: tuple[DeviceProperties, ...] = ()
    record_shapes: bool | None = None
    with_stack: bool | None = None
    profile_memory: bool | None = None
    trace_id: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    accelerators: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    format: Literal["kineto", "perfetto", "nsight"] = "kineto"


def meta_of(head: Mapping[str, Any], accelerators: tuple[str, ...] = ()) -> Meta:
    """Meta from the top-level keys (all but `traceEvents`), and from what the rows show."""
    distributed = head.get("distributedInfo")
    distributed = distributed if isinstance(distributed, Mapping) else {}
    return Meta(
        rank=_count(distributed.get("rank", head.get("rank"))),
        world_size=_count(distributed.get("world_size", head.get("world_size"))),
        backend=str(distributed.get("backend") or ""),
        devices=tuple(_device(item) for item in _list(head.get("deviceProperties")) if isinstance(item, Mapping)),
        record_shapes=_flag(head.get("record_shapes")),
        with_stack=_flag(head.get("with_stack")),
        profile_memory=_flag(head.get("profile_memory")),
        trace_id=str(head.get("trace_id") or ""),
        versions={
            str(key): str(value)
            for key, value in head.items()
            if str(key).endswith("_version") and isinstance(value, int | float | str)
        },
        accelerators=accelerators,
        groups=tuple(_groups(distributed.get("pg_config"))),
    )


def base_ns(head: Mapping[str, Any]) -> int:
    """`baseTimeNanoseconds`, which all time stamps are relative to; 0 where absent or absurd."""
    value = integer(head.get("baseTimeNanoseconds"))
    return value if 0 < value < 1 << 62 else 0


def _device(item: Mapping[str, Any]) -> DeviceProperties:
    return DeviceProperties(
        name=str(item.get("name") or ""),
        major=_count(item.get("computeMajor")),
        minor=_count(item.get("computeMinor")),
        multiprocessors=_count(item.get("numSms")),
        total_memory=_count(item.get("totalGlobalMem")),
    )


def _groups(value: Any) -> Iterator[Group]:
    """The process groups that `pg_config` lists, with their ranks; damaged ones are left out."""
    for one in _list(value):
        ranks = _list(one.get("ranks")) if isinstance(one, Mapping) else []
        if ranks and all(isinstance(rank, int) for rank in ranks):
            yield Group(str(one.get("pg_name") or ""), str(one.get("pg_desc") or ""), tuple(ranks))


def _count(value: Any) -> int | None:
    number = integer(value) if value is not None else -1
    return number if number >= 0 else None


def _flag(value: Any) -> bool | None:
    return bool(value) if isinstance(value, int) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
