"""A glance at a trace file: which rank of how many, and when; without reading its events."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

from msgspec import Struct

from advisor.errors import InputError
from advisor.places.place import Place
from advisor.trace.meta import base_ns, meta_of
from advisor.trace.numbers import ABSENT, nanoseconds
from advisor.trace.read.file_kind import kind_of
from advisor.trace.read.source import BLOCK_BYTES, open_source
from advisor.trace.read.split import opening
from advisor.trace.read.top_level import facts, no_events
from advisor.trace.repair.event_by_event import Careful

_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{1,19}(?:\.\d{1,9})?)')
_PHASE = re.compile(rb'"ph"\s*:\s*"')
# Stamps further than this from the others are stray (rows at time 0 stand in some files): no window is an hour long.
FAR_NS = 3600 * 10**9


class Peek(Struct, frozen=True):
    """What a glance shows. Times are ns on the machine's clock; None where the file does not say."""

    path: Place
    rank: int | None
    world_size: int | None
    start_ns: int | None
    end_ns: int | None


def peek(path: Place, whole: bool = True) -> Peek:
    """Reads the start and the end of a trace file. Raises InputError, one line, for what is no trace.

    whole: look at the end, too, where rank and last time may stand, and unpack a compressed file up to there; else only
    the start is looked at, and no times.
    """
    with open_source(path) as source:
        if source.kind() == "sqlite":
            from advisor.trace.formats.nsight import window_ns

            return Peek(path, None, None, *(window_ns(path)))
        blocks = source.blocks()
        beginning = next(blocks, b"")
        if kind_of(beginning[:512])[0] == "perfetto":
            from advisor.trace.formats.perfetto import look

            look(chain((beginning,), blocks), str(path))
            return Peek(path, None, None, None, None)
        blocks = chain((beginning,), blocks)
        start = opening(blocks, str(path))
        if start.shape == "none":
            raise InputError(no_events(start.head, str(path)))
        if b'"torchAdvisorVersion"' in start.head:
            # Its rows stand there for a second time, beside those that advisor drew.
            raise InputError(f"{path}: output of --format perfetto; pass the original traces")
        first = start.rest or next(blocks, b"")
        if start.shape == "list" and _PHASE.search(first) is None and first.lstrip()[:1] != b"{":
            raise InputError(
                f"{path}: a JSON list without events (a memory timeline?); pass the *.pt.trace.json[.gz] file"
            )
        last = first
        if whole:
            last = (b"" if source.packed else _tail(path)) or first
            for block in blocks if last is first else ():
                last = last[-BLOCK_BYTES:] + block
    known = _known(path, start.head, last, start.shape)
    low, high = _window(first, last, base_ns(known)) if whole else (None, None)
    meta = meta_of(known)
    return Peek(path, meta.rank, meta.world_size, low, high)


def _tail(path: Place) -> bytes:
    """The last block of a plain file."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - BLOCK_BYTES, 0))
        return file.read()


def _known(path: Place, head: bytes, last: bytes, shape: str) -> dict[str, Any]:
    """What the file states besides its events."""
    careful = Careful()
    known = facts(head, careful, str(path), "list")
    if shape == "object" and ("distributedInfo" not in known or "baseTimeNanoseconds" not in known):
        end = last.rfind(b"]", 0, last.find(b'"distributedInfo"') + 1 or None)
        careful.tail = [last[max(end, 0) :].decode("utf-8", "replace")]
        known = {**facts(b"", careful, str(path), "list"), **known}
    return known


def _window(first: bytes, last: bytes, base: int) -> tuple[int, int] | tuple[None, None]:
    """The first and the last time, from both ends of the file."""
    times = [time for text in (first, last) if (time := _time(text)) is not None]
    # Rows stand roughly in time order; M rows repeat the first time, so both ends are looked at over many rows.
    return (min(t[0] for t in times) + base, max(t[1] for t in times) + base) if times else (None, None)


def _time(text: bytes) -> tuple[int, int] | None:
    stamps = sorted((float(found[1]), found[1]) for found in _TIME.finditer(text))
    if not stamps:
        return None
    middle = stamps[len(stamps) // 2][0]
    near = [stamp for us, stamp in stamps if abs(us - middle) * 1000 < FAR_NS]
    # Only the ends have to be exact.
    low, high = (nanoseconds(stamp.decode()) for stamp in (near[0], near[-1]))
    return (low, high) if ABSENT not in (low, high) else None
