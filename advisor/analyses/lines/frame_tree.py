"""The Python frames of a thread as a tree: which function a stretch of time belongs to."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from advisor.analyses.lines.frames import Owner
from advisor.model import Source
from advisor.trace.events import Ids, Ints, Numbers
from advisor.trace.intervals import Intervals

# A function answers for a span when its calls cover this much of it: the rest is entering and leaving them.
_COVERS = 0.9


class FrameTree(Struct, frozen=True, eq=False):
    """Frames of the user's code and of libraries on the loop's thread.

    spans, rows  disjoint stretches in order, and the row of the innermost frame in each
    parent       by event row: the next frame outwards, -1 for none
    frames       by index of a name: the frame and whose code it is
    step_ns      length of a step: a frame that is longer holds the loop
    """

    spans: Intervals
    rows: Ints
    parent: Numbers
    start_ns: Ints
    end_ns: Ints
    name: Ids
    frames: dict[int, tuple[Source, Owner]]
    step_ns: float

    def covering(self, start_ns: int, end_ns: int) -> tuple[Source, str] | None:
        """The function whose calls, one or many, take nearly all of a span, and what to call it; None if there is none.

        The innermost one of the user's code, and the name of the innermost one of the library that it calls; where the
        user's holds the loop, the library's for both.
        """
        first = int(np.searchsorted(self.spans[:, 1], start_ns, side="right"))
        last = int(np.searchsorted(self.spans[:, 0], end_ns, side="left"))
        if last <= first:
            return None
        spans = self.spans[first:last]
        took = np.minimum(spans[:, 1], end_ns) - np.maximum(spans[:, 0], start_ns)
        row, which = np.unique(self.rows[first:last], return_inverse=True)
        shares = np.bincount(which.reshape(-1), weights=took)
        stacks = [(self._stack(one), float(ns)) for one, ns in zip(row.tolist(), shares, strict=True)]
        path = self._path(stacks, _COVERS * (end_ns - start_ns))
        return self._answer(path)

    def _stack(self, row: int) -> list[int]:
        """Rows of the frames around, outermost first."""
        found = []
        while row >= 0:
            found.append(row)
            row = int(self.parent[row])
        return found[::-1]

    def _path(self, stacks: list[tuple[list[int], float]], least_ns: float) -> list[int]:
        """Rows of functions, each within the one before, that take so much time; of each one call, the longest."""
        path: list[int] = []
        while True:
            depth, spent, longest = len(path), Counter[int](), dict[int, int]()
            for stack, ns in stacks:
                if len(stack) > depth:
                    name = int(self.name[stack[depth]])
                    spent[name] += round(ns)
                    longest[name] = max(longest.get(name, stack[depth]), stack[depth], key=self._length)
            name, ns = spent.most_common(1)[0] if spent else (-1, 0)
            if name < 0 or ns < least_ns:
                return path
            path.append(longest[name])
            stacks = [(stack, t) for stack, t in stacks if len(stack) > depth and self.name[stack[depth]] == name]

    def _answer(self, path: list[int]) -> tuple[Source, str] | None:
        of_user = [at for at, row in enumerate(path) if self.frames[int(self.name[row])][1] == Owner.USER]
        if not path:
            return None
        at = of_user[-1] if of_user else -1
        called = self._last_of_library(path, at + 1) if at + 1 < len(path) else at
        if at < 0 or self._length(path[at]) >= self.step_ns:
            at = called
        source, inner = (self.frames[int(self.name[path[place]])][0] for place in (at, called))
        return source, inner.function or ""

    def _last_of_library(self, path: list[int], first: int) -> int:
        """Place of the last function that is of the same library as the first one, without another in between."""
        packages = [self.frames[int(self.name[row])][0].file.replace("\\", "/") for row in path[first:]]
        packages = [file.rpartition("-packages/")[2].split("/")[0] for file in packages]
        same = next((at for at, package in enumerate(packages) if package != packages[0]), len(packages))
        return first + same - 1

    def _length(self, row: int) -> int:
        return int(self.end_ns[row] - self.start_ns[row])
