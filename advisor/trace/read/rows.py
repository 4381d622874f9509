"""The rows of one file as growing columns: by the extension, by decoding to structs, or one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from advisor.trace.numbers import TooLargeError
from advisor.trace.read.extract import COLUMNS, MEMORY_COLUMNS, NARROW, Columns, extract
from advisor.trace.read.split import halves
from advisor.trace.read.store import Store
from advisor.trace.repair.event_by_event import END, Careful
from advisor.trace.schema import decoder
from advisor.trace.tables import Tables

if TYPE_CHECKING:
    from advisor.trace.read.native_columns import Scanner, Slice

# A refused slice is halved until it is this small; then its events are read one by one.
SMALL_BYTES = 1 << 14
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
        self.events = Store(COLUMNS, "start_ns", share, NARROW)
        self.memory = Store(MEMORY_COLUMNS, "time_ns", share)
        self.careful = Careful()
        self._decoder = decoder(exact=False)
        self._exact = False
        self._scanner = scanner_of(self.tables)

    def another_scanner(self) -> Scanner | None:
        """One for a second thread, on the same tables; None where the extension was not built."""
        return scanner_of(self.tables)

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
