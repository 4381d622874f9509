"""Kineto's JSON to a `Trace`: blocks of bytes in, columns out, in memory bounded by the columns."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from advisor.errors import InputError
from advisor.trace import meta
from advisor.trace.dialects import accelerators
from advisor.trace.events import Trace
from advisor.trace.numbers import TooLargeError
from advisor.trace.read import top_level
from advisor.trace.read.assemble import assemble, assemble_memory
from advisor.trace.read.extract import COLUMNS, MEMORY_COLUMNS, Columns, extract
from advisor.trace.read.split import halves, opening, slices
from advisor.trace.read.store import Store
from advisor.trace.read.top_level import no_events
from advisor.trace.repair import health as checks
from advisor.trace.repair.event_by_event import END, Careful
from advisor.trace.schema import decoder
from advisor.trace.tables import Tables

if TYPE_CHECKING:
    from advisor.trace.read.native_columns import Scanner, Slice

# A refused slice is halved until it is this small; then its events are read one by one.
SMALL_BYTES = 1 << 14
# Slices that are scanned ahead of the one that is put away: enough to keep a second core busy.
AHEAD = 3
# What is raised for a slice that has to be read otherwise.
REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TooLargeError)


def scanner_of(tables: Tables) -> Scanner | None:
    """The fast way of reading ordinary rows; None where the extension was not built."""
    try:
        from advisor.trace.read.native_columns import Scanner
    except ImportError:
        return None
    return Scanner(tables)


class Rows:
    """The rows of one file, slice after slice in file order."""

    def __init__(self, share: Callable[[], float] = float) -> None:
        """share: asked how much of the file was read so far, 0 to 1; 0 is not known."""
        self.tables = Tables()
        self.events = Store(COLUMNS, "start_ns", share)
        self.memory = Store(MEMORY_COLUMNS, "time_ns", share)
        self.careful = Careful()
        self._decoder = decoder(exact=False)
        self._exact = False
        self._scanner = scanner_of(self.tables)

    def add(self, piece: bytes, last: bool = False) -> None:
        """Adds the rows of a slice of whole events."""
        scanner = None if self._is_careful() else self._scanner
        found = scanner.scan(piece) if scanner else None
        if scanner is None or found is None or not self.add_scanned(scanner, found):
            self.add_decoded(piece, last)

    def _is_careful(self) -> bool:
        """Whether events are read one by one until further notice."""
        return self.careful.tail is not None or bool(self.careful.carry)

    def add_scanned(self, scanner: Scanner, found: Slice) -> bool:
        """Adds the rows of a slice that was scanned; False, and nothing added, where they have to be read otherwise."""
        scanner.learn(found)
        try:
            tail = found.tail()
            if self._is_careful() or (tail is not None and not END.match("]" + tail)):
                return False
            self.keep(scanner.columns(found))
        except REFUSED:
            return False
        finally:
            scanner.done(found)
        if tail is not None:
            self.careful.tail = [tail]
        return True

    def add_decoded(self, piece: bytes, last: bool = False) -> None:
        """Adds the rows of a slice by decoding them; what cannot be decoded as a whole is cut into halves."""
        parts = None
        if not self._is_careful():
            try:
                return self.keep(self._decoded(piece))
            except REFUSED:
                parts = halves(piece) if len(piece) > SMALL_BYTES else None
        if parts is None:
            return self.keep(extract(self.careful.read(piece[1:-1], last), self.tables))
        self.add(parts[0])
        return self.add(parts[1], last)

    def _decoded(self, piece: bytes) -> tuple[Columns, Columns]:
        """The columns of a slice without any oddity. Raises one of REFUSED for every other."""
        try:
            return extract(self._decoder.decode(piece), self.tables)
        except TooLargeError:
            if self._exact:
                raise
            # The whole file is of the era that wrote such times.
            self._exact, self._decoder = True, decoder(exact=True)
            return extract(self._decoder.decode(piece), self.tables)

    def keep(self, columns: tuple[Columns, Columns]) -> None:
        """Adds columns that are decoded already."""
        complete, memory = columns
        self.events.add(complete)
        self.memory.add(memory)


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
        scanner = scanner_of(rows.tables) if ahead else None
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
    facts = top_level.facts(head, rows.careful, path, shape)
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
