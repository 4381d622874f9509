"""The fields of Kineto's JSON that the reader takes; everything else is skipped without being built."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

Number = int | float | str | None
Label = int | float | str | None


class Args(msgspec.Struct, gc=False):
    """`args` of an event, all eras: the spellings differ, the absent ones stay None."""

    external: Number = msgspec.field(name="External id", default=None)
    external_2021: Number = msgspec.field(name="external id", default=None)
    correlation: Number = None
    device: Number = None
    stream: Number = None
    bytes: Number = None
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    dims_2021: msgspec.Raw = msgspec.field(name="Input dims", default=msgspec.Raw())
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    sequence: Number = msgspec.field(name="Sequence number", default=None)
    forward: Number = msgspec.field(name="Fwd thread id", default=None)
    python_id: Number = msgspec.field(name="Python id", default=None)
    python_parent: Number = msgspec.field(name="Python parent id", default=None)
    stack: str | None = msgspec.field(name="Call stack", default=None)
    grid: Any = None
    collective: str | None = msgspec.field(name="Collective name", default=None)
    dtype: str | None = None
    in_elements: Number = msgspec.field(name="In msg nelems", default=None)
    out_elements: Number = msgspec.field(name="Out msg nelems", default=None)
    group_size: Number = msgspec.field(name="Group size", default=None)
    group: Label = msgspec.field(name="Process Group Name", default=None)
    collective_sequence: Number = msgspec.field(name="Seq", default=None)
    memory_bytes: Number = msgspec.field(name="Bytes", default=None)
    allocated: Number = msgspec.field(name="Total Allocated", default=None)
    reserved: Number = msgspec.field(name="Total Reserved", default=None)
    device_type: Number = msgspec.field(name="Device Type", default=None)
    device_id: Number = msgspec.field(name="Device Id", default=None)
    name: Any = None
    labels: Any = None


class Event(msgspec.Struct, gc=False):
    """One row of `traceEvents`."""

    ph: str = ""
    cat: str | None = ""
    name: str | None = ""
    pid: Label = None
    tid: Label = None
    ts: Number = None
    dur: Number = None
    args: Args | None = None


class ExactEvent(Event, gc=False):
    """A row whose time stamps are too large for a float to hold their nanoseconds."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]
