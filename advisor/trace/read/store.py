"""Columns that grow slice by slice, each in one piece of memory, so that nothing is held twice when they are whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.trace.numbers import is_narrow
from advisor.trace.read.extract import Columns

# The first piece of a column: the rows of about ten slices, enough to tell how many the file will hold.
FIRST_ROWS = 1 << 15
# Room for a fourth more rows than are expected: memory that is not written to is not used.
ROOM = 1.25
# However small a share of the file was read: a damaged one must not ask for all memory.
MOST_TIMES = 32


class Store:
    """The columns of all slices so far. What a slice does not hold is -1; what none holds takes no memory."""

    def __init__(
        self,
        kinds: Mapping[str, type[np.generic]],
        key: str,
        share: Callable[[], float] = float,
        narrow: Collection[str] = (),
    ) -> None:
        """kinds: every column with its type. key: a column that each slice has.

        share: asked how much of the file was read so far, 0 to 1; 0 is not known.
        narrow: columns of 32 bits until a value needs more (`numbers.narrowed`).
        """
        self.rows = 0
        self._kinds, self._key, self._share = {**kinds, **dict.fromkeys(narrow, np.int32)}, key, share
        self._narrow = set(narrow)
        self._room: Columns = {}
        self._filled: dict[str, int] = {}

    def add(self, part: Columns) -> None:
        """Appends the columns of one slice."""
        count = len(part[self._key])
        for name, values in part.items():
            # Numbers of texts and threads come in 32 bits: they are far fewer than those hold.
            if name in self._narrow and values.dtype.itemsize > 4 and not is_narrow(values):
                self._widen(name)
            self._grow(name, count)[self.rows : self.rows + count] = values
            self._filled[name] = self.rows + count
        self.rows += count

    def _widen(self, name: str) -> None:
        """From now on a column takes 64 bits."""
        self._narrow.remove(name)
        self._kinds[name] = np.int64
        if name in self._room:
            self._move(name, len(self._room[name]))

    def _move(self, name: str, rows: int) -> None:
        """A column to other memory, with room for so many rows; only what is filled is written to."""
        room, filled = self._room.get(name), self._filled.get(name, 0)
        larger: npt.NDArray[Any] = np.empty(rows, self._kinds[name])
        self._room[name] = larger
        if room is not None:
            larger[:filled] = room[:filled]

    def _grow(self, name: str, count: int) -> npt.NDArray[Any]:
        """The memory of a column, with room for more rows, and -1 in those that had no value."""
        if name not in self._room or len(self._room[name]) < self.rows + count:
            self._move(name, max(FIRST_ROWS, self._enough(self.rows + count)))
        room, filled = self._room[name], self._filled.get(name, 0)
        room[filled : self.rows] = -1
        return room

    def _enough(self, rows: int) -> int:
        """How many rows to make room for when there are so many: those of the whole file where that can be told."""
        share = self._share()
        expected = ROOM * rows / share if share > 0 else 0
        return max(2 * rows, int(min(expected, MOST_TIMES * rows)))

    def take(self) -> Columns:
        """All columns; the store is empty then. Those that hold nothing are read-only."""
        columns: Columns = {}
        for name, kind in self._kinds.items():
            if name in self._room or name == self._key:
                columns[name] = self._grow(name, 0)[: self.rows]
            else:
                columns[name] = np.broadcast_to(np.array(-1, kind), (self.rows,))
        self.rows, self._room, self._filled = 0, {}, {}
        return columns
