"""Lines of the script, and the statements around them."""

from __future__ import annotations

import msgspec


class CodePlace(msgspec.Struct, frozen=True):
    """A line of the script. made_by: the framework that did it there: lightning | transformers | accelerate."""

    file: str
    line: int
    function: str = ""
    made_by: str | None = None


class TextBlock(msgspec.Struct, frozen=True, array_like=True):
    """A compound statement of the script, as its source text shows it.

    kind: loop: repeats its lines;  guard: an `if` with a remainder (`step % 100`);  with: opens what its lines read;
        counts: a loop whose lines count elements that equal its variable
    """

    kind: str
    line: int  # of the statement
    first: int  # line of its body
    last: int
