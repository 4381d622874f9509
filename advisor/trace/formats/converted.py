"""What a reader of another format hands over: rows as Kineto would have written them, and what the file lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from advisor.model import Health

Format = Literal["perfetto", "nsight"]
# Rows that become columns together: enough for numpy, few enough to hold as objects.
SLICE_ROWS = 50_000


class Converted(Protocol):
    """A trace in another format. All but `format` is known once `slices` is exhausted.

    format     what the file is
    base_ns    what times of rows are relative to, ns since 1970, or of the recorder's clock where it knows no date
    facts      keys as at the top level of Kineto's JSON (`deviceProperties`, `distributedInfo`)
    cut_short  why the file ended early; empty where it did not
    health     what the file does not say, and what was left out
    """

    format: Format
    base_ns: int
    facts: Mapping[str, Any]
    cut_short: str

    def slices(self) -> Iterator[list[Any]]:
        """Structs of `advisor.trace.schema`, in any order. Raises InputError for what is no trace."""

    def health(self) -> tuple[Health, ...]:
        """What a reader of the report should know about this file."""
