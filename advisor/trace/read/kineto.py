"""Kineto's JSON to a `Trace`: blocks of bytes in, columns out, in memory bounded by the columns."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from advisor.errors import InputError
from advisor.trace import meta
from advisor.trace.dialects import accelerators
from advisor.trace.events import Trace
from advisor.trace.read import top_level
from advisor.trace.read.assemble import assemble, assemble_memory
from advisor.trace.read.rows import Rows
from advisor.trace.read.split import opening, slices
from advisor.trace.read.top_level import no_events
from advisor.trace.repair import health as checks

if TYPE_CHECKING:
    from advisor.trace.read.native_columns import Scanner, Slice

# Slices that are scanned ahead of the one that is put away: enough to keep a second core busy.
AHEAD = 3


def read_blocks(
    blocks: Iterator[bytes],
    path: str,
    cut_short: Callable[[], str] = str,
    share: Callable[[], float] = float,
    ahead: bool = False,
) -> Trace:
    """The trace in a stream of JSON text. Raises InputError where it is no trace.

    cut_short: asked after the last block why the stream ended early; empty where it did not.
    share: asked how much of the file was read so far, 0 to 1; 0 is not known.
    ahead: scan the next slices in a second thread.
    """
    with collector_off():
        start = opening(blocks, path)
        if start.shape == "none":
            why = cut_short()
            what = f"{path}: {why} before the first event; copy it again"
            raise InputError(what if why else no_events(start.head, path))
        pieces = slices(start.rest, blocks, path)
        rows = Rows(share)
        scanner = rows.another_scanner() if ahead else None
        if scanner is None:
            _in_turn(rows, pieces)
        else:
            _ahead(rows, pieces, scanner)
        return finish(rows, start.head, path, start.shape, cut_short())


def _in_turn(rows: Rows, pieces: Iterator[bytes]) -> None:
    previous = next(pieces, b"[]")
    for piece in pieces:
        rows.add(previous)
        previous = piece
    rows.add(previous, last=True)


def _ahead(rows: Rows, pieces: Iterator[bytes], scanner: Scanner) -> None:
    """The same with a second thread, which scans slices while this one reads the file and keeps the columns."""
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[tuple[bytes, Future[Slice | None]]] = deque()

    def settle(last: bool = False) -> None:
        piece, scanned = waiting.popleft()
        found = scanned.result()
        if found is None or not rows.add_scanned(scanner, found):
            rows.add_decoded(piece, last)

    with ThreadPoolExecutor(1) as threads:
        for piece in pieces:
            waiting.append((piece, threads.submit(scanner.scan, piece)))
            if len(waiting) > AHEAD:
                settle()
        while waiting:
            settle(last=len(waiting) == 1)


def finish(rows: Rows, head: bytes, path: str, shape: str, cut_short: str) -> Trace:
    """The trace from all rows, the text before them and the text after them."""
    rows.careful.finish()
    return trace_of(rows, top_level.facts(head, rows.careful, path, shape), path, shape, cut_short)


def trace_of(rows: Rows, facts: Mapping[str, Any], path: str, shape: str, cut_short: str) -> Trace:
    """The trace from all rows and what the file says besides them."""
    base = meta.base_ns(facts)
    events, memory = assemble(rows.events, rows.tables, base), assemble_memory(rows.memory, base)
    if not len(events) and not len(memory.time_ns):
        raise InputError(f"{path}: {top_level.empty_reason(facts)}")
    health = checks.health(rows, shape, cut_short, events)
    known = meta.meta_of(facts, accelerators(rows.tables.categories))
    return Trace(path, events, known, memory, health)


@contextmanager
def collector_off() -> Iterator[None]:
    """The cyclic garbage collector off: rows hold no cycles, and walking them costs more than reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
