"""Lines of the script, and what its text says of them."""

from __future__ import annotations

import msgspec


class CodePlace(msgspec.Struct, frozen=True):
    """A line of the script's text."""

    file: str
    line: int
    function: str = ""


class TextBlock(msgspec.Struct, frozen=True, array_like=True):
    """A statement of the script's text that decides about lines of its function, as far as its text tells.

    kind: loop: it repeats them;  guard: an `if` with a remainder (`step % 100`);  with: they read what it opened
    """

    kind: str
    line: int  # of the statement
    first: int  # of the lines
    last: int
