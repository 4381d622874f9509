"""Whether a script trains in another loop than before, by the way of calls to a backward pass and the script's text."""

from __future__ import annotations

import ast

from ..facts.source.syntax import Trees
from .code_marks import Codes
from .stack_samples import Stack

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Pairs of ways that are remembered: a script has a few lines that call a backward pass.
_MOST_PAIRS = 256


class Home:
    """The training loop that backward passes were in so far.

    Two ways part at a function of the script's in which another line runs. These lines take turns if a loop holds
    both, or if a loop further out, or a library, called that function: then they are one training loop. So are those of
    which training comes back to the first: something repeats them that is no loop in the text.
    """

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self._trees = Trees()
        self._way: Stack = ()
        self._left: set[Stack] = set()
        self._known: dict[tuple[Stack, Stack], bool] = {}
        self.compared = 0  # pairs of ways so far; the first of a file takes its text, which is milliseconds

    def left(self, way: Stack) -> bool:
        """Whether the backward pass at the end of this way is of another loop than the last one that was told."""
        before, self._way = self._way, way
        if not before or not way or before == way or self._are_one(before, way):
            return False
        if way in self._left:
            self._known[before, way] = self._known[way, before] = True
            return False
        if len(self._left) < _MOST_PAIRS:
            self._left.add(before)
        return True

    def _are_one(self, before: Stack, way: Stack) -> bool:
        """Whether these are of one loop; that of a pair is found out once, as losses may take turns in every step."""
        if (before, way) not in self._known:
            self.compared += 1
            if len(self._known) >= _MOST_PAIRS:
                self._known.clear()
            self._known[before, way] = self._take_turns(before, way)
        return self._known[before, way]

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
        nodes = list(ast.walk(tree))
        loops = [(one.body[0].lineno, one.end_lineno or 0) for one in nodes if isinstance(one, _LOOPS)]
        loops += [(one.lineno, one.end_lineno or 0) for one in nodes if isinstance(one, _COMPREHENSIONS)]
        return any(all(first <= line <= last for line in lines) for first, last in loops)
