"""Columns that grow slice by slice, each in one piece of memory, so that nothing is held twice when they are whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.trace.read.extract import Columns

# The first piece of a column: the rows of about ten slices, enough to tell how many the file will hold.
FIRST_ROWS = 1 << 15
# Room for a fourth more rows than are expected: memory that is not written to is not used.
ROOM = 1.25
# However small a share of the file was read: a damaged one must not ask for all memory.
MOST_TIMES = 32
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


class Store:
    """The columns of all slices so far. What a slice does not hold is -1; what none holds takes no memory."""

    def __init__(
        self,
        kinds: Mapping[str, type[np.generic]],
        key: str,
        share: Callable[[], float] = float,
        halved: Collection[str] = (),
    ) -> None:
        """kinds: every column with its type. key: a column that each slice has.

        share: asked how much of the file was read so far, 0 to 1; 0 is not known.
        halved: columns that take 32 bits for each value until one needs more; half of their memory.
        """
        self.rows = 0
        self._kinds = {name: np.int32 if name in halved else kind for name, kind in kinds.items()}
        self._key, self._share, self._halved = key, share, set(halved)
        self._room: Columns = {}
        self._filled: dict[str, int] = {}

    def add(self, part: Columns) -> None:
        """Appends the columns of one slice."""
        count = len(part[self._key])
        for name, values in part.items():
            if name in self._halved and count and not (values.min() >= _LEAST and values.max() <= _MOST):
                self._widen(name)
            self._grow(name, count)[self.rows : self.rows + count] = values
            self._filled[name] = self.rows + count
        self.rows += count

    def _widen(self, name: str) -> None:
        """From now on a column takes 64 bits for each value."""
        self._halved.discard(name)
        self._kinds[name] = np.int64
        if name in self._room:
            self._room[name] = self._room[name].astype(np.int64)

    def _grow(self, name: str, count: int) -> npt.NDArray[Any]:
        """The memory of a column, with room for more rows, and -1 in those that had no value."""
        room = self._room.get(name)
        filled = self._filled.get(name, 0)
        if room is None or len(room) < self.rows + count:
            larger = np.empty(max(FIRST_ROWS, self._enough(self.rows + count)), self._kinds[name])
            if room is not None:
                larger[:filled] = room[:filled]
            self._room[name] = room = larger
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
