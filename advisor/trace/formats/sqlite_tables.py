"""A SQLite file that somebody else wrote: opened for reading alone, plain tables alone, damage in one line."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from advisor.errors import InputError
from advisor.places.place import Place


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of an open file. columns: their names, by table."""

    base: sqlite3.Connection
    columns: dict[str, frozenset[str]]

    def rows(self, table: str, wanted: tuple[str, ...], where: str = "") -> Iterator[tuple[Any, ...]]:
        """Rows of a table, NULL for a column that it lacks; nothing where the table is absent.

        where: a condition on columns that the table has, written by us.
        """
        known = self.columns.get(table)
        if known is None:
            return iter(())
        chosen = ", ".join(f'"{name}"' if name in known else "NULL" for name in wanted)
        return self.base.execute(f'SELECT {chosen} FROM "{table}"{f" WHERE {where}" if where else ""}')

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table is there with these columns."""
        return frozenset(columns) <= self.columns.get(table, frozenset()) and table in self.columns


@contextmanager
def opened(path: Place) -> Iterator[Tables]:
    """The tables of a file on disk. Raises InputError, one line, for what is damaged or lies elsewhere.

    The file stays as it is: no journal is read or made, views and virtual tables are left out, and no function of the
    schema runs that could do more than compute.
    """
    if not isinstance(path, Path):
        raise InputError(f"{path}: an SQLite database, which can only be read from a local disk; copy it there first")
    try:
        base = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
        try:
            base.execute("PRAGMA trusted_schema = OFF")
            base.execute("PRAGMA query_only = ON")
            base.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield Tables(base, _columns(base))
        finally:
            base.close()
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as failure:
        raise InputError(
            f"{path}: an unreadable SQLite database ({failure}); export it again (`nsys export --type sqlite`)"
        ) from failure


def _columns(base: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """Columns of each plain table: `rootpage` is 0 for a virtual one."""
    names = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")]
    asked = "SELECT name FROM pragma_table_info(?)"
    return {name: frozenset(column for (column,) in base.execute(asked, (name,))) for name in names}
