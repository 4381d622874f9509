"""Lines of the script, and the statements around them."""

from __future__ import annotations

import msgspec


class CodePlace(msgspec.Struct, frozen=True):
    """A line of the script.

    made_by: the framework that did it there: lightning | transformers | accelerate; made_in: the installed package
    whose code did it, other than torch, empty for the script's own
    """

    file: str
    line: int
    function: str = ""
    made_by: str | None = None
    made_in: str = ""


class TextBlock(msgspec.Struct, frozen=True, array_like=True):
    """A compound statement of the script, as its source text shows it.

    kind: loop: repeats its lines;  guard: an `if` with a remainder (`step % 100`);  with: opens what its lines read;
        counts: a loop whose lines count elements that equal its variable;  apart: a loop none of whose iterations
        needs what an earlier one made
    """

    kind: str
    line: int  # of the statement
    first: int  # line of its body
    last: int


class MadeClass(msgspec.Struct, frozen=True, array_like=True):
    """A class of the script, as its source text shows it: its lines, and the only call that makes an object of it."""

    first: int
    last: int
    file: str
    line: int


class Container(msgspec.Struct, frozen=True):
    """A container on which a line of the recorded step runs an operation whose time may grow with its length.

    name       as the script writes it;  kind: deque | list | tuple | ndarray | DataFrame | Series
    length     entries or rows;  bytes: of an array;  entries: type of the first one
    operation  index (`x[i]`) | draw (`random.sample(x, k)`) | search (`in`, `.index`, `.remove`, `.count`) |
               front (`.pop(0)`, `.insert(0, y)`, `del x[0]`) | grow (`x = np.append(x, y)`) | row (`.iloc[i]`,
               `.loc[i]`) | rows (`.iterrows()`) | by_row (`x[rows]` of a large array whose columns lie together)
    often      at each run of the line; None if unknown
    read_us    to read an entry of a deque by its index, the mean over its length; by_row: what a row takes longer than
               as many numbers side by side, the median; None if not measured
    made       where it is made; None if unknown
    """

    file: str
    line: int
    function: str
    name: str
    kind: str
    length: int
    operation: str
    bytes: int = 0
    entries: str = ""
    often: float | None = 1.0
    read_us: float | None = None
    made: CodePlace | None = None
