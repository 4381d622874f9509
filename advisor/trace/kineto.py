"""Kineto's JSON to a `Trace`: blocks of bytes in, columns out, in memory bounded by the columns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from advisor.errors import InputError
from advisor.trace import checks, heads, meta
from advisor.trace.assemble import assemble, assemble_memory
from advisor.trace.careful import Careful
from advisor.trace.dialects import accelerators
from advisor.trace.events import Trace
from advisor.trace.extract import COLUMNS, MEMORY_COLUMNS, Columns, extract
from advisor.trace.heads import no_events
from advisor.trace.helper import REFUSED, Helper, in_order_of_sight
from advisor.trace.numbers import TooLargeError
from advisor.trace.schema import decoder
from advisor.trace.split import halves, opening, slices
from advisor.trace.store import Store
from advisor.trace.tables import Tables

# A refused slice is halved until it is this small; then its events are read one by one.
SMALL_BYTES = 1 << 14


class Rows:
    """The rows of one file, slice after slice in file order."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.events = Store(COLUMNS, "start_ns")
        self.memory = Store(MEMORY_COLUMNS, "time_ns")
        self.careful = Careful()
        self._decoder = decoder(exact=False)
        self.exact = False

    def add(self, piece: bytes, last: bool = False) -> None:
        """Adds the rows of a slice of whole events."""
        if self.careful.tail is not None or self.careful.carry:
            return self.keep(extract(self.careful.read(piece[1:-1], last), self.tables))
        try:
            self.keep(self.fast(piece))
        except REFUSED:
            parts = halves(piece) if len(piece) > SMALL_BYTES else None
            if parts is None:
                return self.keep(extract(self.careful.read(piece[1:-1], last), self.tables))
            self.add(parts[0])
            self.add(parts[1], last)
        return None

    def fast(self, piece: bytes) -> tuple[Columns, Columns]:
        """The columns of a slice without any oddity. Raises one of REFUSED for every other."""
        try:
            return extract(self._decoder.decode(piece), self.tables)
        except TooLargeError:
            if self.exact:
                raise
            # The whole file is of the era that wrote such times.
            self.exact, self._decoder = True, decoder(exact=True)
            return extract(self._decoder.decode(piece), self.tables)

    def keep(self, columns: tuple[Columns, Columns]) -> None:
        """Adds columns that are decoded already."""
        complete, memory = columns
        self.events.add(complete)
        self.memory.add(memory)


def read_blocks(
    blocks: Iterator[bytes], path: str, cut_short: Callable[[], str] = str, helper: Helper | None = None
) -> Trace:
    """The trace in a stream of JSON text. Raises InputError where it is no trace.

    cut_short: asked after the last block why the stream ended early; empty where it did not.
    helper: a second process that takes slices while this one is busy.
    """
    with collector_off():
        start = opening(blocks, path)
        if start.shape == "none":
            why = cut_short()
            what = f"{path}: {why} before the first event; copy it again"
            raise InputError(what if why else no_events(start.head, path))
        pieces = slices(start.rest, blocks, path)
        rows = _in_turn(pieces) if helper is None else _beside(pieces, helper)
        return finish(rows, start.head, path, start.shape, cut_short())


def _in_turn(pieces: Iterator[bytes]) -> Rows:
    rows = Rows()
    previous = next(pieces, b"[]")
    for piece in pieces:
        rows.add(previous)
        previous = piece
    rows.add(previous, last=True)
    return rows


def _beside(pieces: Iterator[bytes], helper: Helper) -> Rows:
    """The same with a second process: slices are decoded in any order and kept in that of the file."""
    rows = Rows()
    ready: dict[int, tuple[Columns, Columns] | bytes] = {}
    number, kept = -1, 0
    for number, piece in enumerate(pieces):
        ready.update(helper.results(rows.tables))
        kept = _settle(rows, ready, kept, number)
        # The first slice shows the era; when its times do not fit into floats, the helper is of no use.
        if number == 0 or rows.exact or not helper.give(number, piece):
            try:
                ready[number] = rows.fast(piece)
            except REFUSED:
                ready[number] = piece
    ready.update(helper.results(rows.tables, wait=True))
    for reason, count in helper.dropped.items():
        rows.tables.count(reason, count)
    kept = _settle(rows, ready, kept, number)
    _settle(rows, ready, kept, number + 1, last=True)
    in_order_of_sight(rows.events, rows.tables)
    return rows


def _settle(
    rows: Rows, ready: dict[int, tuple[Columns, Columns] | bytes], kept: int, end: int, last: bool = False
) -> int:
    """Keeps what is ready of the slices from `kept` to before `end`, in order; where the next one starts."""
    while kept < end and kept in ready:
        found = ready.pop(kept)
        if isinstance(found, bytes):
            rows.add(found, last)  # not plain
        else:
            rows.keep(found)
        kept += 1
    return kept


def finish(rows: Rows, head: bytes, path: str, shape: str, cut_short: str) -> Trace:
    """The trace from all rows, the text before them and the text after them."""
    rows.careful.finish()
    facts = heads.facts(head, rows.careful, path, shape)
    base = meta.base_ns(facts)
    events, memory = assemble(rows.events, rows.tables, base), assemble_memory(rows.memory, base)
    if not len(events) and not len(memory.time_ns):
        raise InputError(f"{path}: {heads.empty_reason(facts)}")
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
