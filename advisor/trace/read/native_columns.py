"""Slices of ordinary rows to columns by the extension `_scan`, in less than half the time of structs.

Other slices are refused and read by `advisor.trace.schema`, as all are where the extension was not built.
"""

from __future__ import annotations

import os

import msgspec
import numpy as np
from msgspec import Struct

from advisor.arrays import Ints, Mask
from advisor.trace.read import _scan
from advisor.trace.read.extract import NO_ARGS, Columns, Complete, columns_of, keep_labels, memory_columns
from advisor.trace.read.fields import Decoded, Int32s, spread
from advisor.trace.schema import LabelRow, Row
from advisor.trace.tables import Table, Tables

if _scan.LAYOUT != 2:
    raise ImportError("advisor.trace.read._scan was built from a different version; reinstall torch-advisor")

# Slices of more rows are refused: those of 1 MB hold some thousand. No power of two: a row's fields would all fall into
# the same few places of the processor's cache, which took a tenth of the time of scanning.
MOST_ROWS = 33_000
_ENDS = np.cumsum([len(_scan.EVENT_FIELDS), len(_scan.MEMORY_FIELDS), 2]).tolist()
_FIELD = {name: index for index, name in enumerate(_scan.EVENT_FIELDS)}
# MEMORY_FIELDS by the names of columns.
_MEMORY = ("time_ns", "bytes", "total_allocated", "total_reserved", "device_type", "device", "address")
_PLACE = ("cat", "pid", "tid")
# Tables of texts that few rows are asked for.
LATER = ("strides", "values")


class Slice(Struct, frozen=True):
    """What the extension found in `text`: events (field, row), memory (field, instant), labels (start and size).

    All three lie in `room`.
    """

    text: bytes
    room: Ints
    events: Ints
    memory: Ints
    labels: Ints
    fresh: dict[str, list[bytes]]
    end: int

    def tail(self) -> str | None:
        """What follows the list, without the bracket that the cutter put there; None where nothing does."""
        return self.text[self.end : -1].decode() if self.end < len(self.text) else None


class Scanner:
    """Reads the slices of one file. `scan` and `columns` may run in two threads, each in one."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._scanner = _scan.Scanner(seed=int.from_bytes(os.urandom(8), "little"))
        # By table of the file; the numbers of places are those of their threads.
        self._numbers = {name: _Numbers() for name in (*_scan.TABLES, *LATER)}
        self._kinds = _Numbers()
        self._unreadable = False  # whether a text so far was
        self._rooms: list[Ints] = []  # memory that was written to already; fresh memory is cleared by the system first
        self._row, self._label = msgspec.json.Decoder(Row, strict=False), msgspec.json.Decoder(LabelRow, strict=False)

    def scan(self, text: bytes) -> Slice | None:
        """The rows of a slice; None where it is not plain."""
        if not text.isascii():
            try:
                text.decode()
            except UnicodeDecodeError:
                return None
        room = self._rooms.pop() if self._rooms else np.empty((_ENDS[-1], MOST_ROWS), np.int64)
        first, second, _ = _ENDS
        events, memory, labels = room[:first], room[first:second], room[second:]
        counts = self._scanner.read(text, events, memory, labels)
        if counts is None:
            self._rooms.append(room)
            return None
        complete, instants, named, end = counts
        fresh = dict(zip(_scan.TABLES, self._scanner.fresh(), strict=True))
        return Slice(text, room, events[:, :complete], memory[:, :instants], labels[:, :named], fresh, end)

    def done(self, found: Slice) -> None:
        """Takes the memory of a slice back for the next one: its columns must have been copied."""
        self._rooms.append(found.room)

    def learn(self, found: Slice) -> None:
        """Gives new texts their numbers in the tables of the file: of every slice, in the order of scanning."""
        tables, fresh, numbers = self._tables, found.fresh, self._numbers
        for name in ("dims", "dtypes"):
            numbers[name].add([getattr(tables, name)[text] for text in fresh[name]])
        numbers["names"].add([self._number(tables.names, text) for text in fresh["names"]])
        numbers["stacks"].add([self._number(tables.stacks, text) if text else -1 for text in fresh["stacks"]])
        places = [self._place(text) for text in fresh["places"]]
        self._kinds.add([kind for kind, _ in places])
        numbers["places"].add([thread for _, thread in places])

    def columns(self, found: Slice) -> tuple[Columns, Columns]:
        """The columns of a slice that was learned, as `extract` gives them.

        Raises a MsgspecError where the rows have to be read otherwise, as all do after a text that cannot be read.
        """
        if self._unreadable:
            raise msgspec.ValidationError("half a character in a name, or a thread that is neither number nor text")
        labels = [self._label.decode(found.text[at : at + size]) for at, size in found.labels.T.tolist()]
        columns = columns_of(self._complete(found), self._tables)
        keep_labels(labels, self._tables)
        return columns, memory_columns(dict(zip(_MEMORY, found.memory, strict=True)))

    def _complete(self, found: Slice) -> Complete:
        start, dur, name, place = (found.events[_FIELD[field]] for field in ("start", "dur", "name", "place"))
        names, threads = self.numbers("names", name), self.numbers("places", place)
        fields = _Scanned(self, found, np.ones(len(name), np.bool_))
        return Complete(start, dur, names, self._kinds.of(place).astype(np.int8), threads, fields)

    def _number(self, table: Table, text: bytes) -> int:
        """The number of a text between two quotes."""
        if b"\\" not in text:
            return table[text.decode()]
        try:
            return table[msgspec.json.decode(b'"%s"' % text, type=str)]
        except msgspec.MsgspecError:  # half of a surrogate pair
            self._unreadable = True
            return -1

    def _place(self, text: bytes) -> tuple[int, int]:
        """Category and thread of what the extension tells apart: category, pid and tid as they stand, a line each."""
        stated = [
            b'"%s":%s' % (key.encode(), value) for key, value in zip(_PLACE, text.split(b"\n"), strict=False) if value
        ]
        try:
            row = self.row(b"{%s}" % b",".join([b'"ph":"X"', *stated]))
        except msgspec.MsgspecError:
            self._unreadable = True
            return 0, -1
        return self._tables.categories[row.cat], self._tables.threads[row.pid, row.tid]

    def numbers(self, name: str, own: Ints) -> Int32s:
        """The numbers of texts in a table of the file, from the extension's own."""
        return self._numbers[name].of(own)

    def later(self, name: str, text: bytes, places: Ints) -> Int32s:
        """The numbers of texts in a table of LATER. places (2, rows): where they start in a slice, and their sizes."""
        places = np.ascontiguousarray(places)
        table = getattr(self._tables, name)
        self._numbers[name].add([table[fresh] for fresh in self._scanner.number(name, text, places)])
        return self.numbers(name, places[0])

    def row(self, text: bytes) -> Row:
        """One row, decoded. Raises MsgspecError."""
        row: Row = self._row.decode(text)
        return row


class _Scanned:
    """`Fields` of a slice."""

    def __init__(self, scanner: Scanner, found: Slice, mask: Mask) -> None:
        self._scanner, self._found, self._mask = scanner, found, mask

    def of(self, mask: Mask) -> _Scanned:
        """The same for those rows only."""
        return _Scanned(self._scanner, self._found, mask)

    def integers(self, name: str) -> Ints:
        """Ids and sizes."""
        return np.where(self._mask, self._found.events[_FIELD[name]], -1)

    def texts(self, name: str, tables: Tables) -> Int32s:
        """Numbers of JSON texts in the table of that name."""
        if name not in LATER:
            return self._scanner.numbers(name, self.integers(name))
        return spread(self._mask, self._scanner.later(name, self._found.text, self._places(name, self._mask)))

    def stacks(self, tables: Tables) -> Int32s:
        """Numbers of call stacks."""
        return self._scanner.numbers("stacks", self.integers("stack"))

    def blocks(self) -> Ints:
        """Thread blocks of launch grids."""
        return self.integers("blocks")

    def collectives(self, tables: Tables) -> Int32s:
        """Numbers of collectives."""
        return self._rare().collectives(tables)

    def waits(self, tables: Tables) -> Int32s:
        """Numbers of what one stream waited for on another."""
        return self._rare().waits(tables)

    def _rare(self) -> Decoded:
        """The rows that hold what the extension does not know, decoded."""
        rare, text = self.integers("rare_at") >= 0, self._found.text
        places = self._places("rare", rare).T.tolist() if np.count_nonzero(rare) else []
        return Decoded([self._scanner.row(text[at : at + size]).args or NO_ARGS for at, size in places], rare)

    def _places(self, name: str, mask: Mask) -> Ints:
        """Where something starts, and its size, of the chosen rows: (2, rows), -1 where it is not stated."""
        first = _FIELD[f"{name}_at"]  # the size is the next field
        return self._found.events[first : first + 2, mask]


class _Numbers:
    """Numbers in a table of the file by those of the extension; -1, not stated, stays -1."""

    def __init__(self) -> None:
        self._numbers = np.full(1 << 8, -1, np.int32)  # longer than what is filled: its last entry is -1
        self._filled = 0

    def add(self, numbers: list[int]) -> None:
        """Those of the next texts."""
        end = self._filled + len(numbers)
        if end >= len(self._numbers):
            self._numbers = np.append(self._numbers, np.full(max(end, 1 << 8), -1, np.int32))
        self._numbers[self._filled : end] = numbers
        self._filled = end

    def of(self, own: Ints) -> Int32s:
        """Those of rows."""
        return self._numbers.take(own)
