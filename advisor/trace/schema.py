"""The rows of `traceEvents` as typed structs: only the fields that the reader takes are built, the rest is skipped.

The structs are told apart by `ph`. A row of another kind, or of a shape that these types refuse, makes the decoder
refuse its whole slice, which then takes the careful path (`advisor.trace.repair.event_by_event`).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

# Where one event ends and the usual first key of another follows.
BOUNDARY = re.compile(r'\}\s*+(?:,\s*+)?(?=\{\s*"(?:ph|name|cat|id|pid|tid|ts|dur|args|s|bp)"\s*:)')

NAN = float("nan")
NO_JSON = Raw()

# Numbers are decoded as floats because that is the cheapest way into numpy: integers up to 2**53 survive it exactly,
# and larger ones are noticed (`advisor.trace.read.extract`).
Number = float | None
# Integers stay what they are: a large float may have lost what stood behind its point.
Time = int | float | None
Label = int | float | str | None


class RowArgs(Struct, gc=False):
    """`args` of a complete event, all eras and vendors: spellings differ, absent ones keep the default."""

    external: Number = field(name="External id", default=-1.0)
    external_2021: Number = field(name="external id", default=-1.0)
    correlation: Number = -1.0
    device: Number = -1.0
    stream: Number = -1.0
    bytes: Number = -1.0
    dims: Raw = field(name="Input Dims", default=NO_JSON)
    dims_2021: Raw = field(name="Input dims", default=NO_JSON)
    dtypes: Raw = field(name="Input type", default=NO_JSON)
    strides: Raw = field(name="Input Strides", default=NO_JSON)
    values: Raw = field(name="Concrete Inputs", default=NO_JSON)
    sequence: Number = field(name="Sequence number", default=-1.0)
    forward: Number = field(name="Fwd thread id", default=-1.0)
    python_id: Number = field(name="Python id", default=-1.0)
    python_parent: Number = field(name="Python parent id", default=-1.0)
    stack: str | None = field(name="Call stack", default=None)
    grid: list[float] | None = None
    collective: str | None = field(name="Collective name", default=None)
    dtype: Any = None
    in_elements: Any = field(name="In msg nelems", default=None)
    out_elements: Any = field(name="Out msg nelems", default=None)
    group_size: Any = field(name="Group size", default=None)
    group: Any = field(name="Process Group Name", default=None)
    collective_sequence: Any = field(name="Seq", default=None)
    purpose: Any = field(name="Process Group Description", default=None)
    sends_to: Any = field(name="Dst Rank", default=None)
    receives_from: Any = field(name="Src Rank", default=None)
    waited_stream: Number = field(name="wait_on_stream", default=-1.0)
    waited_event: Number = field(name="wait_on_cuda_event_record_corr_id", default=-1.0)


class Row(Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event: something with a start and a duration."""

    cat: str | None = ""
    name: str | None = ""
    pid: Label = None
    tid: Label = None
    ts: Time = NAN
    dur: Time = NAN
    args: RowArgs | None = None


class ExactRow(Row, gc=False, tag_field="ph", tag="X"):
    """A complete event of the era whose µs are too large for a float to hold their nanoseconds."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


class InstantArgs(Struct, gc=False):
    """`args` of a `[memory]` instant."""

    bytes: Number = field(name="Bytes", default=NAN)
    allocated: Number = field(name="Total Allocated", default=-1.0)
    reserved: Number = field(name="Total Reserved", default=-1.0)
    device_type: Number = field(name="Device Type", default=-1.0)
    device: Number = field(name="Device Id", default=-1.0)
    address: Number = field(name="Addr", default=-1.0)


class Instant(Struct, gc=False, tag_field="ph", tag="i"):
    """A point in time: `[memory]` is the only one that is kept."""

    name: str | None = ""
    ts: Time = NAN
    args: InstantArgs | None = None


class ExactInstant(Instant, gc=False, tag_field="ph", tag="i"):
    """A point in time with exact µs."""

    ts: Decimal | None = None  # type: ignore[assignment]


class LabelArgs(Struct, gc=False):
    """`args` of a metadata row."""

    name: Any = None


class LabelRow(Struct, gc=False, tag_field="ph", tag="M"):
    """A metadata row: names of processes and threads."""

    name: str | None = ""
    pid: Label = None
    tid: Label = None
    args: LabelArgs | None = None


def _skipped(phase: str, name: str) -> type[Struct]:
    """A kind of row that is read past: nothing of it is built."""
    return msgspec.defstruct(name, [], tag_field="ph", tag=phase, gc=False)


FLOWS = tuple(_skipped(phase, f"Flow_{phase}") for phase in "stf")
COUNTER = _skipped("C", "Counter")


def decoder(exact: bool) -> msgspec.json.Decoder[list[Any]]:
    """A decoder of a JSON list of rows. `exact` keeps times as decimals, at three times the cost."""
    kinds: Any = (ExactRow if exact else Row) | (ExactInstant if exact else Instant) | LabelRow | COUNTER
    for kind in FLOWS:
        kinds = kinds | kind
    # Not strict: torch_npu and others write numbers as text.
    return msgspec.json.Decoder(list[kinds], strict=False)
