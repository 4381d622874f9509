"""Columns that grow slice by slice, each in one piece of memory, so that nothing is held twice when they are whole."""

from __future__ import annotations

from array import array

import numpy as np

from advisor.trace.extract import Columns

_CODES = {np.dtype(np.int64): "q", np.dtype(np.int32): "i", np.dtype(np.int8): "b"}


class Store:
    """The columns of all slices so far. What a slice does not hold is -1; what none holds takes no memory."""

    def __init__(self, kinds: dict[str, type[np.generic]], key: str) -> None:
        """kinds: every column with its type. key: a column that each slice has."""
        self.rows = 0
        self._kinds = {name: np.dtype(kind) for name, kind in kinds.items()}
        self._key = key
        self._grown = self._fresh()

    def add(self, part: Columns) -> None:
        """Appends the columns of one slice."""
        for name, values in part.items():
            kind = self._kinds[name]
            grown = self._grown.setdefault(name, array(_CODES[kind]))
            self._pad(grown)
            grown.frombytes(values.astype(kind, copy=False).tobytes())
        self.rows += len(part[self._key])

    def _fresh(self) -> dict[str, array[int]]:
        return {self._key: array(_CODES[self._kinds[self._key]])}

    def _pad(self, grown: array[int]) -> None:
        missing = self.rows - len(grown)
        if missing:
            # All bits set is -1 in every type.
            grown.frombytes(b"\xff" * (missing * grown.itemsize))

    def take(self) -> Columns:
        """All columns; the store is empty then. Those that hold nothing are read-only."""
        grown, self._grown = self._grown, self._fresh()
        columns: Columns = {}
        for name, kind in self._kinds.items():
            if name in grown:
                self._pad(grown[name])
                columns[name] = np.frombuffer(grown[name], kind)
            else:
                columns[name] = np.broadcast_to(np.array(-1, kind), (self.rows,))
        self.rows = 0
        return columns
