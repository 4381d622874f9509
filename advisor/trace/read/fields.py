"""What rows of a slice say in `args`, field by field: the rows that `advisor.trace.schema` decoded."""

from __future__ import annotations

from itertools import chain, compress
from operator import attrgetter
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from advisor.trace.events import Collective, Ints, Mask, Waited
from advisor.trace.numbers import integer, integers
from advisor.trace.schema import RowArgs
from advisor.trace.tables import Tables, Texts

NO_WAIT = (-1.0, -1.0)
_NOT_STATED = {-1.0}
Int32s = npt.NDArray[np.int32]


class Fields(Protocol):
    """Columns of all rows of a slice, by the names of `RowArgs`. -1 is what is not stated, or not chosen by `of`."""

    def of(self, mask: Mask) -> Self:
        """The same for those rows only; -1 for all others."""

    def integers(self, name: str) -> Ints:
        """Ids and sizes. Raises TooLargeError where a float could not hold one."""

    def texts(self, name: str, tables: Tables) -> Int32s:
        """Numbers of JSON texts in the table of that name."""

    def stacks(self, tables: Tables) -> Int32s:
        """Numbers of call stacks."""

    def blocks(self) -> Ints:
        """Thread blocks of launch grids `[x, y, z]`; -1 without sense, too."""

    def collectives(self, tables: Tables) -> Int32s:
        """Numbers of collectives."""

    def waits(self, tables: Tables) -> Int32s:
        """Numbers of what one stream waited for on another."""


class Decoded:
    """Fields of rows that were decoded to structs."""

    def __init__(self, args: list[RowArgs], mask: Mask | None = None) -> None:
        """args: of the rows that the mask chooses; of all without one."""
        self._args = args
        self._mask = mask

    def of(self, mask: Mask) -> Decoded:
        """The same for those rows only. To be asked of all rows."""
        return self if mask.all() else Decoded(list(compress(self._args, mask.tobytes())), mask)

    def integers(self, name: str) -> Ints:
        """Ids and sizes. Raises TooLargeError where a float could not hold one."""
        return self._spread(integers(self._values(name)))

    def texts(self, name: str, tables: Tables) -> Int32s:
        """Numbers of JSON texts in the table of that name."""
        raws = [arg.dims or arg.dims_2021 for arg in self._args] if name == "dims" else self._values(name)
        return self._spread(interned(raws, getattr(tables, name)))

    def stacks(self, tables: Tables) -> Int32s:
        """Numbers of call stacks."""
        return self._numbers([tables.stacks[stack] if stack else -1 for stack in self._values("stack")])

    def blocks(self) -> Ints:
        """Thread blocks of launch grids."""
        return self._spread(_blocks(self._values("grid")))

    def collectives(self, tables: Tables) -> Int32s:
        """Numbers of collectives."""
        if not any(self._values("collective")):
            return self._numbers([-1] * len(self._args))
        return self._numbers([tables.collectives[_collective(arg)] if arg.collective else -1 for arg in self._args])

    def waits(self, tables: Tables) -> Int32s:
        """Numbers of what one stream waited for on another."""
        streams, recorded = self._values("waited_stream"), self._values("waited_event")
        if {*streams, *recorded} <= _NOT_STATED:
            return self._numbers([-1] * len(streams))
        waits = zip(streams, recorded, strict=True)
        return self._numbers([-1 if wait == NO_WAIT else tables.waits[_waited(*wait)] for wait in waits])

    def _values(self, name: str) -> list[Any]:
        return list(map(attrgetter(name), self._args))

    def _numbers(self, values: list[int]) -> Int32s:
        return self._spread(np.array(values, np.int32))

    def _spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if self._mask is None else spread(self._mask, values)


def interned(raws: list[Any], table: Texts) -> Int32s:
    """Numbers of JSON texts (bytes-like) in their table."""
    # JSON text holds no NUL, so that one copy of all texts can be cut again: four times faster than one copy each.
    texts = b"\0".join(raws).split(b"\0") if raws else []
    if len(texts) != len(raws):
        texts = [bytes(raw) for raw in raws]
    return np.fromiter(map(table.__getitem__, texts), np.int32, len(texts))


def spread(mask: Mask, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column of all rows from the values of those that a mask chooses; -1 for the others."""
    column = np.full(len(mask), -1, values.dtype)
    column[mask] = values
    return column


def _waited(stream: Any, event: Any) -> Waited:
    return Waited(integer(stream), integer(event))


def _collective(args: RowArgs) -> Collective:
    return Collective(
        name=args.collective or "",
        dtype=str(args.dtype or ""),
        in_elements=integer(args.in_elements),
        out_elements=integer(args.out_elements),
        group_size=integer(args.group_size),
        group="" if args.group is None else str(args.group),
        sequence=integer(args.collective_sequence),
        purpose="" if args.purpose is None else str(args.purpose),
        peer=integer(args.receives_from if args.sends_to is None else args.sends_to),
    )


def _blocks(grids: list[list[float] | None]) -> Ints:
    stated = np.fromiter(map(bool, grids), np.bool_, len(grids))
    known = [grid for grid in grids if grid]
    if not set(map(len, known)) <= {3}:
        return np.array([blocks(grid) if grid else -1 for grid in grids], np.int64)
    sides = np.fromiter(chain.from_iterable(known), np.float64, 3 * len(known)).reshape(-1, 3)
    with np.errstate(invalid="ignore", over="ignore"):
        product = sides[:, 0] * sides[:, 1] * sides[:, 2]
    found = np.full(len(grids), -1, np.int64)
    found[stated] = np.where((product >= 0) & (product < 1 << 53), product, -1.0)
    return found


def blocks(grid: list[float]) -> int:
    """Thread blocks of one launch grid; -1 where it makes no sense."""
    product = grid[0] * grid[1] * grid[2] if len(grid) == 3 else float(np.prod(grid))
    return int(product) if 0 <= product < 1 << 53 else -1
