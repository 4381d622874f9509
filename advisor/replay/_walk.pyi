"""The extension in `native/`: what `advisor.replay.walk.in_python` does, in the same order."""

from advisor.arrays import Floats
from advisor.replay.walk import Columns

def walk(done: Floats, at: int, columns: Columns, /) -> None: ...
