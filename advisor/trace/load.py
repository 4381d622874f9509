"""Reads a trace file into a `Trace`: `load(path)`, and `read_bytes(data, path)` for JSON that is already in memory."""

from __future__ import annotations

import gc
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InputError
from advisor.model import Health
from advisor.trace import meta
from advisor.trace.columns import EXACT_FLOAT_US, Builder
from advisor.trace.events import Trace
from advisor.trace.schema import Event, ExactEvent


def load(path: str | PathLike[str]) -> Trace:
    """The trace in a file, plain or gzipped (told by its first bytes, not its name).

    Raises InputError, one line, for a file that cannot be read or holds no trace.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as failure:
        raise InputError(f"{file}: cannot be read ({failure})") from failure
    return read_bytes(data, str(file))


def read_bytes(data: bytes, path: str) -> Trace:
    """The trace in JSON text. `path` only names it in messages. Raises InputError where it is no trace."""
    with _no_collector():
        try:
            head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            rows = head.pop("traceEvents", None)
            if rows is None:
                raise InputError(
                    f"{path}: no `traceEvents` in it, so it is no Kineto trace; give a *.pt.trace.json file"
                )
            events = _decode(rows)
            rest = {key: msgspec.json.decode(value) for key, value in head.items()}
        except (msgspec.MsgspecError, UnicodeDecodeError) as failure:
            raise InputError(f"{path}: not readable as a trace ({failure}); record it again") from failure
        builder = Builder()
        builder.add(events)
        base = meta.base_ns(rest)
        health = tuple(
            Health("trace-rows", "note", f"{number} rows {reason}") for reason, number in builder.counts.items()
        )
        return Trace(path, builder.events(base), meta.meta_of(rest), builder.memory_events(base), health)


def _decode(rows: Any) -> list[Event]:
    events = msgspec.json.decode(rows, type=list[Event])
    if any(type(event.ts) is float and abs(event.ts) >= EXACT_FLOAT_US for event in events):
        return list(msgspec.json.decode(rows, type=list[ExactEvent]))
    return events


@contextmanager
def _no_collector() -> Iterator[None]:
    """The cyclic garbage collector off: rows hold no cycles, and walking them costs more than reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
