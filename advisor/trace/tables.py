"""The distinct texts and places of a file: what columns hold are their numbers."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.arrays import Mask
from advisor.trace.dialects import category
from advisor.trace.schema import Row


class Table(dict[Any, int]):
    """Interns values: `table[value]` is its index, the next free one for a new value."""

    __slots__ = ()

    def __missing__(self, value: Any) -> int:
        index = self[value] = len(self)
        return index


class Texts(Table):
    """Interns JSON text as it stands in the file; text that is absent (empty) is -1."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__({b"": -1})

    def __missing__(self, value: Any) -> int:
        index = self[value] = len(self) - 1
        return index


class Categories(dict[Any, int]):
    """Category number by raw text; each distinct text is looked at once."""

    __slots__ = ()

    def __missing__(self, raw: Any) -> int:
        value = self[raw] = int(category(raw or ""))
        return value


class Detailed:
    """Whether strides and plain arguments of an op are kept; each distinct name is looked at once."""

    __slots__ = ("_kept", "_looked_at")

    # Products, convolutions, attention and normalisation: sizes of inputs alone do not tell what they do; nor do they
    # tell of joined tensors which of them are expanded, of logits how they lie in memory, or of which part a gradient
    # is. Of all ops the texts would cost a tenth of the time of reading.
    _NAMES = re.compile(
        "mm|linear|matmul|conv|attention|norm|c10d::(?:send|recv_|broadcast_)|::cat$|::(?:select|slice)_backward$"
        "|::cross_entropy_loss$"
    )

    def __init__(self) -> None:
        self._kept = np.zeros(1 << 10, np.bool_)
        self._looked_at = 0

    def of(self, names: Table, indices: npt.NDArray[np.int32]) -> Mask:
        """For each of some rows with these names. names: the table that grows with the file."""
        if len(names) > len(self._kept):
            self._kept = np.append(self._kept, np.zeros(len(names), np.bool_))
        fresh = len(names) - self._looked_at
        for back, name in enumerate(islice(reversed(names), fresh), 1):  # the latest are the last
            self._kept[len(names) - back] = self._NAMES.search(name or "") is not None
        self._looked_at = len(names)
        return self._kept.take(indices)


class Places(dict[Any, int]):
    """Interns (category as written, pid, tid) of rows: one look-up gives a row's category and its thread."""

    __slots__ = ("_kinds", "_places", "_tables")

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables
        self._kinds: list[int] = []
        self._places: list[int] = []

    def __missing__(self, key: tuple[Any, Any, Any]) -> int:
        raw, pid, tid = key
        self._kinds.append(self._tables.categories[raw])
        self._places.append(self._tables.threads[pid, tid])
        index = self[key] = len(self)
        return index

    def of(self, rows: list[Row]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32]]:
        """Category and thread of each row."""
        keys = zip([row.cat for row in rows], [row.pid for row in rows], [row.tid for row in rows], strict=True)
        index = np.fromiter(map(self.__getitem__, keys), np.intp, len(rows))
        if len(self) > len(rows):  # a thread for nearly every row: not all of them again for each slice
            chosen = index.tolist()
            kinds, places = [self._kinds[at] for at in chosen], [self._places[at] for at in chosen]
            return np.array(kinds, np.int8), np.array(places, np.int32)
        return np.array(self._kinds, np.int8)[index], np.array(self._places, np.int32)[index]


class Tables:
    """The distinct texts of a file, in order of first sight."""

    def __init__(self) -> None:
        self.names, self.threads, self.dims, self.dtypes = Table(), Table(), Texts(), Texts()
        self.strides, self.values = Texts(), Texts()
        self.stacks, self.collectives, self.waits = Table(), Table(), Table()
        self.categories = Categories()
        self.detailed = Detailed()
        self.places = Places(self)
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self.dropped: dict[str, int] = {}

    def count(self, reason: str, number: int) -> None:
        """Notes that `number` rows were left out or repaired, and why."""
        if number:
            self.dropped[reason] = self.dropped.get(reason, 0) + number
