"""Whether a script trains in another loop than before, by the way of calls to a backward pass and the script's text."""

from __future__ import annotations

import ast

from ..facts.source.syntax import Trees
from .code_marks import Codes
from .stack_samples import Stack

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Home:
    """The training loop that backward passes were in so far.

    Two ways part at a function of the script's in which another line runs. These lines take turns if a loop holds
    both, or if a loop further out, or a library, called that function: then they are one training loop.
    """

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self._trees = Trees()
        self._way: Stack = ()

    def left(self, way: Stack) -> bool:
        """Whether the backward pass at the end of this way is of another loop than the last one that was told."""
        before, self._way = self._way, way
        return bool(before) and bool(way) and before != way and not self._take_turns(before, way)

    def _take_turns(self, first: Stack, second: Stack) -> bool:
        called = False
        for (key, line), (other, there) in zip(first, second, strict=False):
            known = self._codes.known[key]
            if key != other:
                return True  # one line calls either
            if not known.file:
                if called or line != there:
                    return True
                continue
            called = True
            if self._in_one_loop(known.code.co_filename, line, there):
                return True
            if line != there:
                return False
        return True

    def _in_one_loop(self, source: str, *lines: int) -> bool:
        """Whether a loop of this file holds all of these lines; True where its text is not known."""
        tree = self._trees.of(source)
        if tree is None or not tree.body:
            return True
        loops = [one for one in ast.walk(tree) if isinstance(one, _LOOPS)]
        return any(all(one.body[0].lineno <= line <= (one.end_lineno or 0) for line in lines) for one in loops)
