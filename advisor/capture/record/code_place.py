"""Lines of the script."""

from __future__ import annotations

import msgspec


class CodePlace(msgspec.Struct, frozen=True):
    """A line of the script's text."""

    file: str
    line: int
    function: str = ""
