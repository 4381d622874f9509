"""Places in the user's code."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Source(Struct, frozen=True):
    """A line of the user's code. precision `function`: the line where the function starts, not that of the call."""

    file: str
    line: int
    function: str = ""
    precision: Literal["call", "function"] = "call"

    @property
    def place(self) -> tuple[str, int]:
        """File and line, by which lines are looked up."""
        return self.file, self.line
