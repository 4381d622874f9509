"""Numbers of JSON as exact integers: µs with a fraction to ns, ids to 64 bits."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.arrays import Floats, Ints, Mask

# Below this a float holds three decimals of a µs value to less than half a nanosecond, so that rounding gives back
# the text. Kineto's relative time stamps stay below 7.9e12 µs (three months); 2**43 is 8.8e12.
EXACT_US = float(1 << 43)
EXACT_INTEGER = float(1 << 53)
# More than this is no time: 73 years in ns, which leaves room to add baseTimeNanoseconds.
LATEST_NS = 1 << 61
ABSENT = np.iinfo(np.int64).min


class TooLargeError(ValueError):
    """A float that cannot hold what the text said; the text has to be read again, exactly."""


def times(values: list[Any]) -> Ints:
    """µs (float, int, Decimal, None) as integer ns; ABSENT where it is no time.

    Raises TooLargeError for floats above EXACT_US.
    """
    floats = _floats(values)
    whole = np.floor(floats)
    with np.errstate(invalid="ignore"):  # infinity is no time; it is marked below
        fraction = floats - whole
    if (np.abs(floats) >= EXACT_US).any():
        if Decimal in set(map(type, values)):
            return np.array([nanoseconds(value) for value in values], np.int64)
        if any(type(value) is float and abs(value) >= EXACT_US for value in values):
            raise TooLargeError  # even without a fraction: it may be what is left of one
    bad = ~(np.abs(floats) < LATEST_NS / 1000)
    if bad.any():
        whole[bad] = fraction[bad] = 0
    ns: Ints = whole.astype(np.int64) * 1000 + np.rint(fraction * 1000).astype(np.int64)
    ns[bad] = ABSENT
    return ns


def _floats(values: list[Any]) -> Floats:
    """The values as floats; NaN for None, infinity for integers beyond all floats."""
    try:
        return np.fromiter(values, np.float64, len(values))
    except (TypeError, OverflowError):
        return np.array([_float(value) for value in values], np.float64)


def _float(value: Any) -> float:
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:  # an integer of more than 308 digits
        return float("inf")


def nanoseconds(value: Any) -> int:
    """One time stamp or duration in µs as integer ns, exactly; ABSENT where it is none."""
    if value is None or isinstance(value, bool):
        return ABSENT
    try:
        exact = value if isinstance(value, int | Decimal) else Decimal(str(value))
        # The comparison comes first: 1e999999999 as an integer would fill the memory.
        return round(exact * 1000) if -LATEST_NS < exact * 1000 < LATEST_NS else ABSENT
    except (ArithmeticError, ValueError):
        return ABSENT


def integers(values: list[Any]) -> Ints:
    """Ids and sizes as integers; -1 where absent or no number. Raises TooLargeError for floats beyond 2**53."""
    floats = _floats(values)
    usable = np.abs(floats) < EXACT_INTEGER
    if usable.all():
        return floats.astype(np.int64)
    if (np.abs(floats) >= EXACT_INTEGER).any():
        if any(type(value) is float and abs(value) >= EXACT_INTEGER for value in values):
            raise TooLargeError
        return np.array([integer(value) for value in values], np.int64)
    return np.where(usable, floats, -1.0).astype(np.int64)


def integer(value: Any) -> int:
    """An id as an integer; -1 where it is absent, no number, or beyond 64 bits."""
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 63 else -1
    try:
        if isinstance(value, str):
            value = Decimal(value)
        return int(value) if abs(value) < 1 << 63 else -1
    except (TypeError, ValueError, ArithmeticError):
        return -1


# Below it, a number, and a sum or difference of two, fits into 32 bits.
NARROW_END = 1 << 30


def row_type(count: int) -> type[np.signedinteger[Any]]:
    """The type of columns that hold numbers of so many rows, or -1: 32 bits take half of the memory."""
    return np.int32 if count < 1 << 31 else np.int64


def narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values in 32 bits, where a sum or difference of two would fit, too; else in 64.

    Not in 16: a key of two indices, `name * names + shape`, would not fit.
    """
    return values.astype(np.int32 if is_narrow(values) else np.int64, copy=False)


def is_narrow(values: npt.NDArray[Any]) -> bool:
    """Whether `narrowed` values take 32 bits."""
    return not len(values) or (int(values.min()) >= -NARROW_END and int(values.max()) < NARROW_END)


# Rows that are looked up at a time.
_PIECE = 1 << 16


def looked_up(table: npt.NDArray[Any], indices: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`table.take(indices)` for many indices; -1 is the last entry. numpy alone copies them all to 64 bits first."""
    found = np.empty(len(indices), table.dtype)
    for at in range(0, len(indices), _PIECE):
        table.take(indices[at : at + _PIECE], out=found[at : at + _PIECE], mode="wrap")
    return found


# Values within such a range are told apart by a table; others have to be sorted. A table of so many entries for each
# value takes less time than that.
_TABLE, _TABLE_PER_VALUE = 1 << 16, 4


def small(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values in the same order in 16 bits where they fit, which sort in a sixth of the time; else as they are."""
    if not len(values) or values.dtype.itemsize <= 2:
        return values
    least = values.min()
    return (values - least).astype(np.uint16) if int(values.max()) - int(least) < _TABLE else values


def numbered(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """The distinct ones of some integers, sorted, and for each value the index of its own."""
    most = max(_TABLE, _TABLE_PER_VALUE * len(values))
    if not len(values) or int(values.max()) - int(values.min()) >= most:
        found, index = np.unique(values, return_inverse=True)
        return found, index.reshape(-1)
    least = values.min()
    offset = (values - least).astype(np.intp)
    seen = np.zeros(int(offset.max()) + 1, np.bool_)
    seen[offset] = True
    return (np.flatnonzero(seen) + least).astype(values.dtype), (np.cumsum(seen) - 1).take(offset)


def first_places(index: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.intp]:
    """Where each of the numbers 0 to `count` - 1, all of which are there, first stands in `index`."""
    first = np.empty(count, np.intp)
    first[index[::-1]] = np.arange(len(index) - 1, -1, -1)  # of several the last that is written stays
    return first


def in_order(times: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Times in order. Those of rows are nearly so: merging runs takes a tenth of the time of numpy's usual way."""
    return np.sort(times, kind="stable")


def order_by(first: npt.NDArray[Any], *ties: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The order of rows by `first`, equal ones by each of `ties` in turn, then as they stand.

    What lexsort gives, for a first column that is nearly in order and has few equal values.
    """
    order = np.argsort(first, kind="stable")
    values = first[order]
    same = values[1:] == values[:-1]
    if same.any():
        tied = np.flatnonzero(np.concatenate((same, [False])) | np.concatenate(([False], same)))
        rows = order[tied]
        order[tied] = rows[np.lexsort((*(tie[rows] for tie in reversed(ties)), values[tied]))]
    return order


def distinct(indices: npt.NDArray[Any], size: int) -> Ints:
    """The distinct ones of some indices below `size`, sorted."""
    seen = np.zeros(size, np.bool_)
    seen[indices] = True
    return np.flatnonzero(seen)


def among(indices: npt.NDArray[Any], chosen: npt.NDArray[Any], size: int) -> Mask:
    """Which of some indices below `size` are among the chosen ones; -1, none, never is."""
    seen = np.zeros(size + 1, np.bool_)
    seen[chosen] = True
    seen[-1] = False
    return seen.take(indices)


def distinct_pairs(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """The distinct pairs of two columns, sorted, as (k, 2), and for each row the index of its pair."""
    left, at_left = numbered(first)
    right, at_right = numbered(second)
    codes, code = numbered(at_left * len(right) + at_right)
    pairs = np.column_stack((left[codes // max(len(right), 1)], right[codes % max(len(right), 1)]))
    return pairs.astype(np.int64), code
