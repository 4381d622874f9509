"""The table of fitted and measured numbers: `constants.toml`, beside this file.

Code names a constant where it uses it; thresholds of a rule are keyword parameters of its check and no constants.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

# The median of the absolute value of a standard normal variable.
_MEDIAN_OF_NORMAL = 0.6745
_TABLE = Path(__file__).with_name("constants.toml")
_KEYS = {"value", "low", "high", "unit", "what", "how", "n"}


class Constant(Struct, frozen=True):
    """One number, or a range of it.

    low, high  equal if it is a single number
    unit       "" for a share or a ratio
    what       the quantity;  how: where it was measured, and how
    n          number of measurements; None if the source does not state it
    """

    name: str
    low: float
    high: float
    unit: str
    what: str
    how: str
    n: int | None

    @property
    def value(self) -> float:
        """The one number. Raises ValueError for a range, which has none."""
        if self.low != self.high:
            raise ValueError(f"{self.name} is a range of {self.low:g} to {self.high:g}: ask for `range`")
        return self.low

    @property
    def range(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high


@functools.cache
def constant(name: str) -> Constant:
    """The constant of that name, such as "calls.short_op_us". Raises KeyError for an unknown one."""
    return dict(parsed(tomllib.loads(_texts()[name])))[name]


def known(name: str) -> Constant | None:
    """The constant of that name; None where the table has none."""
    return constant(name) if name in _texts() else None


def every() -> Iterator[Constant]:
    """All constants, in the order of the file."""
    yield from dict(parsed(tomllib.loads(_TABLE.read_text("utf-8")))).values()


@functools.cache
def _texts() -> Mapping[str, str]:
    """The text of each constant's table: a report asks for a third of them, and reading all takes 7 ms."""
    _, *tables = re.split(r"^(?=\[)", _TABLE.read_text("utf-8"), flags=re.MULTILINE)
    return {text[1 : text.index("]")]: text for text in tables}


def parsed(tables: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Constant]]:
    """(name, constant) of each table that holds one. Raises ValueError that names a table which is not whole."""
    for name, table in tables.items():
        full = f"{above}{name}"
        if not isinstance(table, dict):
            raise ValueError(f"constants.toml: {full} is outside the table of a constant")
        if "what" not in table:
            yield from parsed(table, f"{full}.")
            continue
        yield full, _constant(full, table)


def _constant(name: str, table: Mapping[str, Any]) -> Constant:
    ends = ("value",) if "value" in table else ("low", "high")
    missing = [key for key in (*ends, "unit", "how", "n") if key not in table]
    if missing or set(table) - _KEYS:
        raise ValueError(f"constants.toml: {name} lacks {missing} or has keys beyond {sorted(_KEYS)}")
    low, high = float(table[ends[0]]), float(table[ends[-1]])
    n = table["n"]
    if not low <= high or not (n == "not recorded" or (isinstance(n, int) and n > 0)):
        raise ValueError(f"constants.toml: {name} has its ends in the wrong order, or an `n` that is no count")
    return Constant(name, low, high, table["unit"], table["what"], table["how"], n if isinstance(n, int) else None)


def runs_deviation() -> float:
    """Relative standard deviation of the difference of the step times of two runs of one script.

    It is a normal variable whose median absolute value is `runs.repeat`.
    """
    return constant("runs.repeat").value / _MEDIAN_OF_NORMAL
